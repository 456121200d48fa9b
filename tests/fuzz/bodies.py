"""Hostile bodies for the frontend's two routes: valid ones, spoilt, and bytes that are none."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.fuzz import constraints, headers, values

if TYPE_CHECKING:
    from random import Random

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
# What a client can set, by the kind of its value. The frontend's own schema is not ours to walk.
_FIELDS: dict[str, tuple[str, ...]] = {
    "integer": ("max_tokens", "max_completion_tokens", "n", "top_logprobs", "seed", "min_tokens", "top_k",
    "best_of",
                "logprobs"),
    "number": ("temperature", "top_p", "presence_penalty", "frequency_penalty", "min_p",
    "repetition_penalty"),
    "text": ("user", "suffix", "model", "service_tier"),
    "flag": ("ignore_eos", "stream", "echo", "logprobs", "include_stop_str_in_output", "skip_special_tokens"),
    "any": ("logit_bias", "response_format", "tools", "tool_choice", "stream_options", "metadata", "stop",
    "nvext",
            "chat_template_args", "messages", "prompt", "unknown", ""),
}  # fmt: skip
_KINDS = {name: kind for kind, names in _FIELDS.items() for name in names}
_NVEXT = (
    "greed_sampling", "use_raw_prompt", "annotations", "backend_instance_id", "token_data",
    "max_thinking_tokens",
    "cache_salt", "extra_fields", "dp_rank", "prefill_dp_rank", "agent_hints", "request_timestamp_ms",
    "router",
    "routing_constraints", "prefill_worker_id", "unknown",
)  # fmt: skip
_TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
_FORMATS: tuple[Any, ...] = (
    {"type": "json_object"}, {"type": "text"}, {"type": "json_schema", "json_schema": {"name": "s",
    "schema": {}}},
    {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "nonsense"}}},
    {"type": "none-such"}, 7,
)  # fmt: skip


@dataclass(slots=True)
class Body:
    """One HTTP request. leaves_s: after how long its client hangs up; None when it stays."""

    route: str
    payload: bytes
    is_stream: bool
    headers: dict[str, str] = field(default_factory=dict)
    leaves_s: float | None = None

    @property
    def hides_codes(self) -> bool:
        """Whether the frontend of 1.4.2 turns every error of this request into a 500 (docs/limits.md).

        On /v1/completions, and in chats that force a tool call.
        """
        return self.route == COMPLETIONS or b'"tool_choice"' in self.payload


class BodyMaker:
    """Draws bodies. The same random source gives the same ones, in the same order."""

    def __init__(self, rng: Random, model: str, processors: tuple[str, ...], vocab_size: int) -> None:
        self._rng = rng
        self._model = model
        self._processors = processors
        self._vocab_size = vocab_size

    def next(self) -> Body:
        """The next one."""
        rng = self._rng
        route = rng.choice((CHAT, CHAT, COMPLETIONS))
        wire = self._valid(route)
        for spoil in rng.choices(
            (self._odd, self._small, self._nvext, self._guided), (3, 6, 2, 3), k=rng.choice((1, 1, 1, 2, 3))
        ):
            spoil(wire)
        payload = encode(wire)
        if rng.random() < 0.04:
            payload = self._broken(payload)
        body = Body(route, payload, is_stream=wire.get("stream") is True)
        if rng.random() < 0.15:
            body.headers = self._headers()
        if rng.random() < 0.03:
            body.leaves_s = rng.uniform(0.0, 0.05)
        return body

    def _valid(self, route: str) -> dict[str, Any]:
        rng = self._rng
        wire: dict[str, Any] = {
            "model": self._model,
            "max_tokens": rng.randint(1, 8),
            "stream": rng.random() < 0.4,
        }
        if route == CHAT:
            wire["messages"] = [
                {"role": "user", "content": rng.choice(("hello", "w5", values.SECRET, "\U0001f600"))}
            ]
        else:
            wire["prompt"] = rng.choice(("hello", [5, 6, 7], ["a", "b"], [[5, 6], [7]], values.SECRET))
        return wire

    def _odd(self, wire: dict[str, Any]) -> None:
        """Any value for any field."""
        name = self._rng.choice(sorted(_KINDS))
        match self._rng.choice((_KINDS[name], "any")):
            case "integer":
                wire[name] = values.integer(self._rng)
            case "number":
                wire[name] = values.number(self._rng)
            case "text":
                wire[name] = values.text(self._rng)
            case "flag":
                wire[name] = self._rng.random() < 0.5
            case _:
                is_giant = self._rng.random() < 0.05
                wire[name] = (values.giant if is_giant else values.anything)(self._rng)

    def _small(self, wire: dict[str, Any]) -> None:
        """A value that may well be right."""
        rng = self._rng
        name = rng.choice(sorted(_KINDS))
        wire[name] = {
            "integer": rng.randint(0, 8),
            "number": rng.choice((0.0, 0.5, 1.0, 1.5, rng.uniform(-2, 2))),
            "text": values.SECRET,
            "flag": rng.random() < 0.5,
        }.get(_KINDS[name]) or self._right(name)
        if name in ("model", "messages", "prompt"):
            wire.update(self._valid(CHAT if name == "messages" else COMPLETIONS))

    def _right(self, name: str) -> Any:
        rng = self._rng
        fair: dict[str, Any] = {
            "stop": rng.choice(("a", ["a", "b"], [""], ["x"] * 5)),
            "response_format": rng.choice(_FORMATS),
            "tools": [_TOOL] * rng.choice((1, 2)),
            "tool_choice": rng.choice(
                ("none", "auto", "required", {"type": "function", "function": {"name": "f"}})
            ),
            "stream_options": {"include_usage": True},
            "logit_bias": {"5": rng.choice((-100, 1, 100))},
            "nvext": {},
        }
        return fair.get(name, 1)

    def _nvext(self, wire: dict[str, Any]) -> None:
        rng = self._rng
        name = rng.choice(_NVEXT)
        value: Any = values.anything(rng)
        match name:
            case "annotations":
                value = [constraints.annotation(rng, self._processors) for _ in range(rng.choice((1, 2, 9)))]
            case "token_data":
                value = [rng.choice((5, self._vocab_size - 1, self._vocab_size, 2**32 - 1)) for _ in range(4)]
            case "cache_salt":
                value = rng.choice((values.SECRET, "x" * 2000))
            case "agent_hints":
                value = {"priority": values.integer(rng), "osl": values.integer(rng)}
            case _:
                pass
        wire["nvext"] = {name: value}

    def _guided(self, wire: dict[str, Any]) -> None:
        group = constraints.guided(self._rng)
        for name in ("json", "regex", "choice", "grammar", "structural_tag", "whitespace_pattern"):
            if name in group:
                wire[f"guided_{name}"] = group[name]

    def _broken(self, payload: bytes) -> bytes:
        """Cut off, with bytes that are no text, with another document behind it, or nothing at all."""
        rng = self._rng
        where = rng.randrange(len(payload))
        return rng.choice(
            (
                payload[:where],
                payload[:where] + b"\xff\xfe" + payload[where:],
                payload + payload,
                b"",
                b"null",
                b"[]",
                b"\x00",
            )
        )

    def _headers(self) -> dict[str, str]:
        """Without the characters that no client could send."""
        rng = self._rng
        sent = {f"x-dynamo-meta-{name}": value for name, value in headers.metadata(rng).items() if name}
        sent["x-tenant-id"] = values.text(rng)
        return {
            name: value
            for name, value in sent.items()
            if value.isascii() and value.isprintable() and len(value) < 4_000
        }


def encode(wire: Any) -> bytes:
    """As JSON, escapes and all. What Python cannot write becomes deep nonsense of about that size."""
    try:
        return json.dumps(wire).encode()
    except (ValueError, RecursionError, TypeError):
        return b'{"model": ' + b"9" * 6_000 + b"[" * 3_000
