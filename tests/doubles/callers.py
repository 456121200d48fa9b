"""Those who ask: a caller as the graph sees him, what he sends, and how he reads."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from protocols.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.outbox import Outbox
    from protocols.chunks import GenerateChunk

PROMPT = (1, 15, 27, 33)

_NUMBERS = count(1)

# Every group of the framework's dictionary carries all its keys, with None for "not set".
_GROUPS: dict[str, tuple[str, ...]] = {
    "stop_conditions": (
        "max_tokens", "stop", "stop_token_ids", "stop_token_ids_visible", "stop_token_ids_hidden",
        "min_tokens", "ignore_eos", "max_thinking_tokens",
    ),
    "sampling_options": (
        "n", "best_of", "presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p",
        "top_k", "min_p", "use_beam_search", "length_penalty", "seed", "include_stop_str_in_output",
        "guided_decoding",
    ),
    "output_options": (
        "logprobs", "prompt_logprobs", "skip_special_tokens", "formatted_prompt",
        "return_tokens_as_token_ids",
    ),
}  # fmt: skip
_GROUP_OF = {key: group for group, keys in _GROUPS.items() for key in keys}


def wire_request(prompt: Any = PROMPT, **options: Any) -> dict[str, Any]:
    """A request as the framework sends it. Options of a group are given by their bare names.

    ``wire_request(max_tokens=5, n=2, routing={"priority": 1.0})``; unknown names stay at the top.
    """
    wire: dict[str, Any] = {
        "model": "m",
        "token_ids": list(prompt) if isinstance(prompt, tuple | range) else prompt,
        **{group: dict.fromkeys(keys) for group, keys in _GROUPS.items()},
        "eos_token_ids": [2],
        "mdc_sum": "0dd7",
        "annotations": [],
        "router_config_override": None,
    }
    for name, value in options.items():
        if name in _GROUP_OF:
            wire[_GROUP_OF[name]][name] = value
        else:
            wire[name] = value
    return wire


class FakeCaller:
    """One call of ``generate()`` from outside. `leave` is what a disconnect does to its context."""

    def __init__(
        self,
        context_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        trace_headers: Mapping[str, str] | None = None,
    ) -> None:
        self.context_id = context_id or f"context-{next(_NUMBERS)}"
        self.metadata = metadata or {}
        self.trace_headers = trace_headers
        self._is_stopped = False

    def is_stopped(self) -> bool:
        return self._is_stopped

    def leave(self) -> None:
        """The client has closed its connection."""
        self._is_stopped = True


class Reader:
    """Takes chunks from one outbox, as often as it is told, and keeps what it got."""

    def __init__(self, outbox: Outbox) -> None:
        self.chunks: list[GenerateChunk] = []
        self.error: ServiceError | None = None
        self._outbox = outbox

    async def read(self) -> None:
        """Take one chunk, or the error that stands in its place. After the end nothing is there to take."""
        if self._outbox.is_drained:
            return
        try:
            self.chunks.append(await self._outbox.take())
        except ServiceError as exc:
            self.error = exc

    async def read_to_end(self) -> Reader:
        """Take everything up to the last word."""
        while not self._outbox.is_drained:
            await self.read()
        return self

    @property
    def tokens(self) -> list[int]:
        """Everything that was delivered, all choices in the order of their chunks."""
        return [token for chunk in self.chunks for token in chunk["token_ids"]]

    def tokens_of(self, index: int) -> list[int]:
        """What was delivered of one choice."""
        return [token for chunk in self.chunks if chunk["index"] == index for token in chunk["token_ids"]]

    @property
    def finish_reasons(self) -> list[str]:
        """Every finish reason that was seen; of an answer that ended well, exactly one."""
        return [chunk["finish_reason"] for chunk in self.chunks if "finish_reason" in chunk]

    @property
    def terminals(self) -> int:
        """Last words seen: finish reasons and errors. Promised: one."""
        return len(self.finish_reasons) + (self.error is not None)
