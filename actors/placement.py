"""Where a request runs, and which part of it: rank, conversation, adapter, stage, hand-off."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

from protocols.engine import EngineCapabilities, EngineInfo
from protocols.errors import InvalidRequest
from protocols.requests import GenerateRequest, Routing
from protocols.spec import Stage

# A salt is an id of a tenant or a session; it is hashed with the first block of every prompt.
_LONGEST_SALT = 1024
# An id, too.
_LONGEST_CONVERSATION = 1024
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
    handoff = _handoff(request, stage, can.role, engine)
    conversation = _conversation(request) if can.has_conversations else None
    return Placement(
        rank=_rank(routing, can, info, has_conversation=conversation is not None),
        conversation_id=conversation,
        adapter=_adapter(routing.lora_name, engine, can.adapters),
        stage=stage,
        handoff=handoff,
        priority=_priority(routing.priority, request.priority),
        cache_salt=_cache_salt(request, routing),
    )


def _stage(request: GenerateRequest, role: Stage) -> Stage:
    """Health probes, and what the router wants whole, need no other worker."""
    if role is Stage.WHOLE or request.is_probe:
        return Stage.WHOLE
    if role is Stage.DECODE and request.prefill_result is not None:
        # The router ran the prefill although the client asked it not to: what is there is used.
        return Stage.DECODE
    return Stage.WHOLE if BYPASS in (request.annotations or ()) else role


def _handoff(request: GenerateRequest, stage: Stage, role: Stage, engine: str) -> dict[str, Any] | None:
    found = request.prefill_result
    if stage is not Stage.DECODE:
        if found is None:
            return None
        whose = "a prefill worker" if role is Stage.PREFILL else f"engine {engine!r} in this role"
        raise InvalidRequest("prefill_result", "an answer", f"nothing; {whose} does not support it")
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
    if len(session) > _LONGEST_CONVERSATION:
        allowed = f"at most {_LONGEST_CONVERSATION} characters"
        raise InvalidRequest("agent_context.session_id", f"{len(session)} characters", allowed)
    return session.strip()


def _adapter(name: str | None, engine: str, known: frozenset[str]) -> str | None:
    if name is None or name in known:
        return name
    allowed = f"one of {', '.join(sorted(known))}" if known else f"nothing; engine {engine!r} has no adapters"
    raise InvalidRequest("routing.lora_name", name, allowed)


def _priority(of_router: float | None, of_caller: float | None) -> float:
    """Higher goes first; the router's word outweighs the caller's."""
    for field, value in (("routing.priority", of_router), ("priority", of_caller)):
        if value is None:
            continue
        if not math.isfinite(value):
            raise InvalidRequest(field, value, "a finite number")
        return float(value)
    return 0.0


def _cache_salt(request: GenerateRequest, routing: Routing) -> str | None:
    """The router's, else the client's. JSON lets half a character through, which no hash can take."""
    field, salt = "routing.cache_salt", cast("object", routing.cache_salt)
    if salt is None:
        field, salt = "extra_args.nvext.cache_salt", _clients_salt(request.extra_args)
    if salt is None:
        return None
    if not isinstance(salt, str):
        raise InvalidRequest(field, salt, "text")
    try:
        size = len(salt.encode())
    except UnicodeEncodeError:
        raise InvalidRequest(field, ascii(salt), "text of whole characters") from None
    if size > _LONGEST_SALT:
        raise InvalidRequest(field, f"{size} bytes", f"at most {_LONGEST_SALT} bytes")
    return salt


def _clients_salt(extra: dict[str, Any] | None) -> object:
    nvext = (extra or {}).get("nvext")
    return cast("dict[str, object]", nvext).get("cache_salt") if isinstance(nvext, dict) else None
