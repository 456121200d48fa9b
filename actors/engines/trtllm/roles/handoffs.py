"""How a prefill engine's ``DisaggregatedParams`` reach a decode engine: as JSON, by way of the frontend.

The form is that of Dynamo's own TensorRT-LLM worker (1.4.2), so that ours and theirs can serve a request
together, either way round. Nothing in it is ever unpickled.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, cast

from actors.engines.trtllm.library import Library
from actors.engines.trtllm.roles import handoff_fields as read
from actors.engines.trtllm.roles.handoff_fields import LEAST_LOGPROB, Reader, Refused
from protocols.errors import InvalidRequest

WHERE = "prefill_result.disaggregated_params"

_READERS: dict[str, Reader] = {
    "request_type": read.read_type,
    "first_gen_tokens": read.read_tokens,
    "first_gen_log_probs": read.read_logprobs,
    "first_gen_logits": read.read_nothing,
    "ctx_request_id": read.read_id,
    "opaque_state": read.read_state,
    "draft_tokens": read.read_tokens,
    "disagg_request_id": read.read_id,
    "ctx_dp_rank": read.read_rank,
    "ctx_info_endpoint": read.read_endpoint,
    "schedule_style": read.read_style,
    "ctx_usage": read.read_usage,
    "conversation_id": read.read_conversation,
    "multimodal_hashes": read.read_hashes,
    "mrope_position_ids_handle": read.read_nothing,
    "mrope_position_deltas_handle": read.read_nothing,
}
# The KV cache holds what they led to, and the engine refuses them beside it.
_HANDLES = "multimodal_embedding_handles"
# For the router, and for decode workers that would prepare a picture again.
_FOR_OTHERS = frozenset({_HANDLES, "worker_id", "_epd_metadata"})
# What no JSON holds as it is, and what a worker that serves text has no use for.
_NOT_HANDED_OVER = frozenset(
    {"first_gen_logits", "mrope_position_ids_handle", "mrope_position_deltas_handle"}
)


# By one of these the decode engine finds the cache.
_IDS = ("ctx_request_id", "disagg_request_id")


class NotHandedOver(ValueError):
    """The engine made something of a prompt that cannot be given to another worker."""


def whole(library: Library) -> Any:
    """For a request that an engine with one of the two roles serves by itself."""
    return library.DisaggregatedParams(request_type="context_and_generation")


def context_only(library: Library, disagg_request_id: int) -> Any:
    """For a prefill. The id is that of the request in both engines."""
    return library.DisaggregatedParams(request_type="context_only", disagg_request_id=disagg_request_id)


def encode(params: Any) -> dict[str, Any]:
    """JSON of what a prefill engine returned. Raises NotHandedOver; its text names the field.

    Every field of the class is there, be it null, as the decode workers of others expect.
    """
    found = {name: getattr(params, name) for name in _names(params)}
    for name, value in found.items():
        if value is not None and (name in _NOT_HANDED_OVER or name not in {*_READERS, _HANDLES}):
            raise NotHandedOver(f"{name} cannot be handed over to a decode worker")
    if not found.get("first_gen_tokens") or not any(found.get(name) is not None for name in _IDS):
        raise NotHandedOver("a hand-off without its first token, or without an id")
    found[_HANDLES] = None
    if found.get("opaque_state") is not None:
        found["opaque_state"] = base64.b64encode(found["opaque_state"]).decode("ascii")
    if found.get("first_gen_log_probs") is not None:
        found["first_gen_log_probs"] = [_position(each) for each in found["first_gen_log_probs"]]
    if found.get("schedule_style") is not None:
        found["schedule_style"] = int(found["schedule_style"])
    return found


def decode(mapping: Mapping[str, Any], library: Library) -> Any:
    """``DisaggregatedParams`` for the decode engine. Raises InvalidRequest with the name of the field."""
    known = _names(library.DisaggregatedParams)
    found: dict[str, Any] = {}
    for name, value in mapping.items():
        if value is None or name in _FOR_OTHERS:
            continue
        if name not in _READERS or name not in known:
            raise _refusal(name, Refused(value, "nothing; no field of TensorRT-LLM's that is known here"))
        try:
            found[name] = _READERS[name](value)
        except Refused as exc:
            raise _refusal(name, exc) from None
    _check_complete(found)
    found["request_type"] = "generation_only"
    _restore_logprobs(found, library)
    return library.DisaggregatedParams(**found)


def _names(params: Any) -> list[str]:
    """What the class takes, or that of an instance."""
    return [field.name for field in fields(params) if field.init]


def _check_complete(found: Mapping[str, Any]) -> None:
    """An engine that cannot find the cache, or does not know how the answer begins, hangs or fails late."""
    if not found.get("first_gen_tokens"):
        raise _refusal("first_gen_tokens", Refused(None, "the first token of the answer"))
    if not any(found.get(name) is not None for name in _IDS):
        raise _refusal("disagg_request_id", Refused(None, "an id (or a ctx_request_id)"))
    if not found.get("opaque_state") and found.get("ctx_info_endpoint") is None:
        raise _refusal("opaque_state", Refused(None, "where the KV cache lies (or a ctx_info_endpoint)"))


def _restore_logprobs(found: dict[str, Any], library: Library) -> None:
    """The engine reads attributes of what stands under a token id."""
    positions = cast("Iterable[Any]", found.get("first_gen_log_probs") or ())
    restored = [
        {
            token: library.Logprob(logprob=logprob, rank=rank)
            for token, (logprob, rank) in cast("dict[int, tuple[float, int | None]]", position).items()
        }
        if isinstance(position, dict)
        else position
        for position in positions
    ]
    if restored:
        found["first_gen_log_probs"] = restored


def _position(entry: Any) -> list[dict[str, Any]] | float:
    """The candidates of one token, or its own log-probability where the engine told nothing else."""
    if isinstance(entry, int | float):
        return _told(float(entry))
    if not isinstance(entry, Mapping):
        raise NotHandedOver("first_gen_log_probs of several beams cannot be handed over to a decode worker")
    return [
        {"token_id": token, "logprob": _told(each.logprob), "rank": each.rank}
        for token, each in cast("Mapping[int, Any]", entry).items()
    ]


def _told(logprob: float) -> float:
    """JSON has neither infinity nor the result of a division by zero."""
    return logprob if math.isfinite(logprob) else LEAST_LOGPROB


def _refusal(field: str, refused: Refused) -> InvalidRequest:
    # A name that is not ours is the peer's word, of any length.
    return InvalidRequest(f"{WHERE}.{field[:80]}{refused.path}", refused.value, refused.allowed)
