"""Where a request runs, and which part of it: rank, conversation, adapter, stage, hand-off."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

from actors.lacking import lacking
from protocols.engine import EngineCapabilities, EngineInfo
from protocols.errors import InvalidRequest
from protocols.requests import GenerateRequest, Routing
from protocols.spec import Stage

# Bytes: an id of a session.
_LONGEST_CONVERSATION = 1024
# TensorRT-LLM's priority of a request that names none.
_USUAL = 0.5
# Why a hand-off has no place: by the role of the worker.
_TAKES_NONE = {
    Stage.WHOLE: "this worker is not a decode worker, and serves requests whole",
    Stage.PREFILL: "a prefill worker makes it",
    Stage.DECODE: "a health probe is served whole",
}
BYPASS = "x-bypass-remote-prefill"
"""Annotation of a request that its decode worker shall serve whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The fields of `protocols.spec.GenerationSpec` of the same names."""

    rank: int | None
    conversation_id: str | None
    adapter: str | None
    stage: Stage
    handoff: dict[str, Any] | None
    priority: float
    cache_salt: str | None


def place(request: GenerateRequest, engine: str, can: EngineCapabilities, info: EngineInfo) -> Placement:
    """Raises InvalidRequest: field, value, what is allowed."""
    routing = request.routing or Routing()
    stage = _stage(request, can.role)
    handoff = _handoff(request, stage, can.role)
    conversation = _conversation(request) if can.has_conversations else None
    return Placement(
        rank=_rank(routing, can, info, has_conversation=conversation is not None),
        conversation_id=conversation,
        adapter=_adapter(routing.lora_name, engine, can),
        stage=stage,
        handoff=handoff,
        priority=_priority(routing.priority, request.priority),
        cache_salt=_cache_salt(request, routing, can.longest_salt),
    )


def _stage(request: GenerateRequest, role: Stage) -> Stage:
    """Health probes, and what a router left to the decode worker, need no other worker."""
    if request.is_probe:
        return Stage.WHOLE
    # A client may write the annotation too: where a prefill is asked for it is made, and used where it was.
    is_left_alone = role is Stage.DECODE and request.prefill_result is None
    return Stage.WHOLE if is_left_alone and BYPASS in (request.annotations or ()) else role


def _handoff(request: GenerateRequest, stage: Stage, role: Stage) -> dict[str, Any] | None:
    found = request.prefill_result
    if stage is not Stage.DECODE:
        if found is None:
            return None
        raise InvalidRequest("prefill_result", "an answer", f"nothing; {_TAKES_NONE[role]}")
    if found is None:
        allowed = f"the answer of a prefill worker (or the annotation {BYPASS})"
        raise InvalidRequest("prefill_result", None, allowed)
    if not found.disaggregated_params:
        allowed = "what the prefill worker handed over"
        raise InvalidRequest("prefill_result.disaggregated_params", found.disaggregated_params, allowed)
    return found.disaggregated_params


def _rank(
    routing: Routing, can: EngineCapabilities, info: EngineInfo, *, has_conversation: bool
) -> int | None:
    """A prefill worker's has a name of its own. An engine that keeps conversations may choose by itself."""
    is_prefill = can.role is Stage.PREFILL and routing.prefill_dp_rank is not None
    name, rank = ("prefill_dp_rank", routing.prefill_dp_rank) if is_prefill else ("dp_rank", routing.dp_rank)
    ranks = info.data_parallel_size
    if rank is not None and not 0 <= rank < ranks:
        raise InvalidRequest(f"routing.{name}", rank, f"0 to {ranks - 1}, or nothing")
    return None if has_conversation and not can.obeys_ranks else rank


def _conversation(request: GenerateRequest) -> str | None:
    """The caller's session; a blank one is none."""
    session = request.agent_context.session_id if request.agent_context else None
    if session is None or not session.strip():
        return None
    return _name("agent_context.session_id", session.strip(), _LONGEST_CONVERSATION)


def _adapter(name: str | None, engine: str, can: EngineCapabilities) -> str | None:
    if name is None or name in can.adapters:
        return name
    if not can.adapters:
        raise lacking("routing.lora_name", name, engine, can.no_adapters)
    raise InvalidRequest("routing.lora_name", name, f"one of {', '.join(sorted(can.adapters))}")


def _priority(of_router: float | None, of_caller: float | None) -> float:
    """Higher goes first, 0 is usual; the router's word outweighs the caller's, which is TensorRT-LLM's."""
    if of_caller is not None and not 0 <= of_caller <= 1:
        raise InvalidRequest("priority", of_caller, "a number from 0 to 1")
    if of_router is not None and not math.isfinite(of_router):
        raise InvalidRequest("routing.priority", of_router, "a finite number")
    if of_router is None and of_caller is not None:
        return float(of_caller) - _USUAL
    return float(of_router or 0)


def _cache_salt(request: GenerateRequest, routing: Routing, longest: int) -> str | None:
    """The router's, else the client's; an empty one is none."""
    if routing.cache_salt:
        return _name("routing.cache_salt", routing.cache_salt, longest)
    field, salt = "extra_args.nvext.cache_salt", _clients_salt(request.extra_args)
    if salt is None or salt == "":
        return None
    if not isinstance(salt, str):
        raise InvalidRequest(field, salt, "text")
    return _name(field, salt, longest)


def _name(field: str, text: str, longest: int) -> str:
    """A caller's word, to be hashed or sent on. JSON lets half a character through, which cannot be."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidRequest(field, ascii(text), "text of whole characters") from None
    if size > longest:
        raise InvalidRequest(field, f"{size} bytes", f"at most {longest} bytes")
    return text


def _clients_salt(extra: dict[str, Any] | None) -> object:
    nvext = (extra or {}).get("nvext")
    return cast("dict[str, object]", nvext).get("cache_salt") if isinstance(nvext, dict) else None
