"""Whose beginning of a prompt a rank has computed before, in whole blocks. It forgets none of them."""

from __future__ import annotations

from tensorrt_llm._double.wire import GenerationRequest, Settings

# Rank, salt, adapter, and the tokens up to the block's end.
_Block = tuple[int, str | None, str | None, tuple[int, ...]]


class PromptBlocks:
    """Of one request, besides its last token, which is always computed."""

    def __init__(self, known: set[_Block], blocks: list[_Block]) -> None:
        self._known = known
        self._blocks = blocks

    @property
    def reusable(self) -> int:
        """Tokens of the prompt that the rank has computed."""
        found = 0
        for block in self._blocks:
            if block not in self._known:
                break
            found = len(block[-1])
        return found

    def on_computed(self) -> None:
        """All of them can be reused from now on."""
        self._known.update(self._blocks)


class Reuse:
    """Of all ranks."""

    def __init__(self, settings: Settings) -> None:
        self._size = settings.block_tokens if settings.has_block_reuse else None
        self._known: set[_Block] = set()

    def blocks_of(self, request: GenerationRequest, rank: int) -> PromptBlocks:
        """Those that others with the same salt and adapter could have computed on that rank."""
        prompt, adapter = request.prompt_token_ids, request.lora_request
        name = None if adapter is None else adapter.name
        ends = range(self._size, len(prompt), self._size) if self._size else ()
        blocks: list[_Block] = [(rank, request.cache_salt, name, tuple(prompt[:end])) for end in ends]
        return PromptBlocks(self._known, blocks)

    def forget(self) -> None:
        """The caches are new."""
        self._known.clear()
