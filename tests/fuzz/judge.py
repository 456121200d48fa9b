"""What a call of ``generate()`` owes its caller, whatever was asked; violations come back as sentences."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from dynamo.llm.exceptions import EngineShutdown, HttpError, InvalidArgument, Unknown

from protocols.requests import is_probe
from tests.fuzz.values import SECRET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.doubles.bridge import BridgeCall
    from tests.fuzz.attacks import Attack

LONGEST_ERROR = 8192
_FIELD = re.compile(r"^(?P<field>.*?): .* is not accepted: ", re.DOTALL)
# What an engine may fail one request with for its own data's sake; both texts have nothing of the caller.
ENGINE_TEXTS = re.compile(
    r"^(the grammar became too costly to follow|the grammar could not be followed any further"
    r"|logits processor '[a-z-]+' .*|min_tokens cannot be reached: every token id ends the request)$"
)
# Where a number is refused for what follows from it.
_FOLLOWS_FROM: dict[str, tuple[str, ...]] = {
    "stop_conditions.max_tokens": (
        "output_options.logprobs",
        "output_options.prompt_logprobs",
        "sampling_options.n",
    ),
    "sampling_options.best_of": ("sampling_options.n",),
}
_DEADLINE = "deadline-ms"


def kind_of(call: BridgeCall) -> str:
    """One word for how it ended, for the table."""
    error = call.error
    if error is None:
        return call.finish_reasons[0] if len(call.finish_reasons) == 1 else "silent"
    return f"HttpError {error.code}" if isinstance(error, HttpError) else type(error).__name__


def flaws_of(attack: Attack, call: BridgeCall) -> Iterator[str]:
    """Everything that is not as promised."""
    if call.terminals != 1:
        yield f"{call.terminals} last words: {call.finish_reasons} {call.error!r}"
    yield from (
        _flaws_of_error(attack, call.error) if call.error is not None else _flaws_of_answer(attack, call)
    )


def _flaws_of_error(attack: Attack, error: BaseException) -> Iterator[str]:
    text = str(error)
    if len(text) > LONGEST_ERROR:
        yield f"an error of {len(text)} characters"
    match error:
        case InvalidArgument():
            yield from _flaws_of_refusal(attack, text)
        case HttpError(code=504 | 499):
            if _DEADLINE not in attack.metadata:
                yield "504 without a deadline"
        case HttpError(code=429):
            yield from _flaws_of_overload(attack, text)
        case Unknown():
            if attack.forbidden or not ENGINE_TEXTS.match(text) or SECRET in text:
                yield f"a client's mistake became Unknown: {text[:200]!r}"
        case EngineShutdown():
            yield f"one request's fault took the worker out of routing: {text[:200]!r}"
        case _:
            yield f"no exception of the framework's: {type(error).__name__}"


def _flaws_of_refusal(attack: Attack, text: str) -> Iterator[str]:
    match = _FIELD.match(text)
    if match is None:
        yield f"a refusal without a field: {text[:200]!r}"
    elif not attack.is_nameless and not any(_names(match["field"], path) for path in attack.touched):
        yield f"a refusal names {match['field'][:100]!r}, and {attack.touched} were changed"


def _names(field: str, touched: str) -> bool:
    """Whether a refusal of ``field`` points at what was changed: itself, its group, or a cause."""
    if field == "request":
        # Depth and half characters are found wherever they are; nothing can be said of where.
        return True
    follows = _FOLLOWS_FROM.get(field, ())
    return field.startswith(touched[:80]) or touched.startswith(field) or touched in follows


def _flaws_of_overload(attack: Attack, text: str) -> Iterator[str]:
    if "retry after" not in text:
        yield "429 without a retry hint"
    is_prepared = "being prepared" in text or "preparing" in text
    if not is_probe(attack.wire) and not is_prepared:
        yield f"429 from a worker with room: {text[:200]!r}"


def _flaws_of_answer(attack: Attack, call: BridgeCall) -> Iterator[str]:
    # A probe that a moving engine answers is looked at for its shape alone: it asks for nothing but this.
    is_sign_of_life = is_probe(attack.wire) and not call.tokens
    if attack.forbidden and not is_sign_of_life:
        yield f"served although the schema forbids {sorted(attack.forbidden)}"
    delivered = 0
    for chunk in call.chunks:
        delivered += len(chunk["token_ids"])
        try:
            json.dumps(chunk, allow_nan=False)
        except ValueError:
            yield "a chunk that is no JSON"
    usage: dict[str, Any] = call.chunks[-1].get("completion_usage") or {} if call.chunks else {}
    if usage.get("completion_tokens") != delivered:
        yield f"usage says {usage.get('completion_tokens')} tokens, {delivered} were delivered"
