"""The request as the framework sends it, decoded and typed.

Every group of the wire dictionary carries all its keys with ``None`` for "not set". Groups
whose keys we know are closed: a key that we do not know is refused by name, so that no option
is ever dropped on the floor. ``routing`` and ``extra_args`` belong to the router and may grow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta, Struct

from protocols.errors import InvalidRequest

# Token ids travel as unsigned 32-bit integers on the event plane.
TokenId = Annotated[int, Meta(ge=0, le=2**32 - 1)]
PositiveInt = Annotated[int, Meta(ge=1)]
NonNegativeInt = Annotated[int, Meta(ge=0)]


class StopConditions(Struct, frozen=True, forbid_unknown_fields=True):
    """When to stop. ``stop`` strings are cut by the frontend, which then aborts the request."""

    max_tokens: PositiveInt | None = None
    stop: list[str] | None = None
    stop_token_ids: list[TokenId] | None = None
    stop_token_ids_visible: list[TokenId] | None = None
    stop_token_ids_hidden: list[TokenId] | None = None
    min_tokens: NonNegativeInt | None = None
    ignore_eos: bool | None = None
    max_thinking_tokens: NonNegativeInt | None = None


class SamplingOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """How to choose tokens. Ranges are checked by the spec resolver, which names the field."""

    n: int | None = None
    best_of: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    use_beam_search: bool | None = None
    length_penalty: float | None = None
    seed: int | None = None
    include_stop_str_in_output: bool | None = None
    guided_decoding: dict[str, Any] | None = None


class OutputOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """What to return beside the tokens. Detokenising options are the frontend's."""

    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool | None = None
    formatted_prompt: bool | None = None
    return_tokens_as_token_ids: bool | None = None


class Routing(Struct, frozen=True):
    """Hints from the router. Open: later frameworks add keys that only a router reads."""

    lora_name: str | None = None
    dp_rank: int | None = None
    prefill_dp_rank: int | None = None
    cache_salt: str | None = None
    priority: float | None = None
    expected_output_tokens: int | None = None


class AgentContext(Struct, frozen=True):
    """Whose request it is, as an agent's framework says. Open, as `Routing` is."""

    session_id: str | None = None


class CachedPrompt(Struct, frozen=True):
    """How much of a prompt its prefill worker found in its cache, in tokens."""

    cached_tokens: NonNegativeInt | None = None


class PrefillResult(Struct, frozen=True):
    """What a prefill worker answered. Open: the framework may add to it."""

    disaggregated_params: dict[str, Any] | None = None
    prompt_tokens_details: CachedPrompt | None = None


class GenerateRequest(Struct, frozen=True):
    """One request as it reaches ``generate()``."""

    token_ids: list[TokenId]
    model: str = ""
    stop_conditions: StopConditions = StopConditions()
    sampling_options: SamplingOptions = SamplingOptions()
    output_options: OutputOptions = OutputOptions()
    eos_token_ids: list[TokenId] | None = None
    annotations: list[str] | None = None
    routing: Routing | None = None
    agent_context: AgentContext | None = None
    # Not from the frontend: callers of upstream's worker set it, 0 to 1.
    priority: float | None = None
    extra_args: dict[str, Any] | None = None
    prefill_result: PrefillResult | None = None
    bootstrap_info: dict[str, Any] | None = None
    multi_modal_data: dict[str, Any] | None = None
    multi_modal_uuids: dict[str, Any] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    prompt_embeds: str | None = None
    encoder_result: dict[str, Any] | None = None
    # Of a request that goes on from another worker, where traces are exported: see `trace_link`.
    migration_link: Any = None
    is_probe: bool = msgspec.field(default=False, name="_HEALTH_CHECK")


# Written by the frontend or the router for themselves; reading them would change nothing here.
_FOR_OTHERS = frozenset({"mdc_sum", "router_config_override", "request_timestamp_ms", "require_reasoning"})
_KNOWN = _FOR_OTHERS | frozenset(field.encode_name for field in msgspec.structs.fields(GenerateRequest))

# msgspec ends its text with " - at `$.a.b[3]`", and with "`key` in" before it for the key of a mapping.
_WHERE = re.compile(r"^(?P<what>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>[^`]*)`)?$", re.DOTALL)
# Two faults that msgspec places at the group; the field is in the text.
_OF_A_FIELD = (
    (
        re.compile(r"^Object contains unknown field `(.*)`$", re.DOTALL),
        "nothing; this field has no meaning here",
    ),
    (re.compile(r"^Object missing required field `(.*)`$", re.DOTALL), "a value; this field is required"),
)
# Names of fields that do not exist are the caller's words.
_LONGEST_NAME = 80


def decode_request(wire: object) -> GenerateRequest:
    """Check and type one wire request.

    Groups that are ``None`` count as absent. Raises InvalidRequest with the path of the
    field, the value found there and what is allowed.
    """
    if not isinstance(wire, Mapping):
        raise InvalidRequest("request", wire, "an object with the fields of a request")
    present = {key: value for key, value in cast("Mapping[str, Any]", wire).items() if value is not None}
    try:
        return msgspec.convert(present, GenerateRequest)
    except msgspec.ValidationError as exc:
        raise _named(exc, present) from None
    except (UnicodeEncodeError, RecursionError) as exc:
        raise InvalidRequest(
            "request", type(exc).__name__, "well-formed text, nested as deep as JSON may be"
        ) from None


def is_probe(wire: object) -> bool:
    """Whether the framework marked this as its own health check. Asked before anything is decoded."""
    match wire:
        case {"_HEALTH_CHECK": True}:
            return True
        case _:
            return False


def unknown_keys(wire: Mapping[str, Any]) -> list[str]:
    """Top-level keys that neither this worker nor the framework we know gives a meaning."""
    return [key for key, value in wire.items() if key not in _KNOWN and value is not None]


def _named(exc: msgspec.ValidationError, wire: Mapping[str, Any]) -> InvalidRequest:
    match = _WHERE.match(str(exc))
    what, path = (match["what"], match["path"] or "") if match else (str(exc), "")
    for pattern, allowed in _OF_A_FIELD:
        if found := pattern.match(what):
            name = found[1]
            field = f"{path}.{name[:_LONGEST_NAME]}" if path else name[:_LONGEST_NAME]
            return InvalidRequest(field, _child(_value_at(wire, path), name), allowed)
    return InvalidRequest(path or "request", _value_at(wire, path), what)


def _value_at(wire: Any, path: str) -> Any:
    """Follow ``a.b[3]`` into the request; what cannot be followed is shown as far as it goes."""
    value = wire
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        try:
            value = value[int(index)] if index else value[name]
        except (KeyError, IndexError, TypeError):
            return value
    return value


def _child(group: object, name: str) -> object:
    return cast("Mapping[str, object]", group).get(name) if isinstance(group, Mapping) else None
