"""Before a spec is submitted: its grammar compiled, its logits processors tried. On a thread of its own."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from actors.engines.torch.config import TorchConfig
from actors.engines.torch.grammars.compiler import GrammarCompiler
from protocols.errors import InternalError, InvalidRequest
from protocols.spec import GenerationSpec, ProcessorEntry


class TorchPreparer:
    """Implements `protocols.engine.SpecPreparer`. One thread: a costly grammar delays only its like."""

    def __init__(self, config: TorchConfig) -> None:
        self._config = config
        self._thread = ThreadPoolExecutor(1, "torch-prepare")
        self._grammars: GrammarCompiler | None = None

    def open(self, vocab_size: int) -> None:
        """The engine has started; ``vocab_size`` is the width of its logits."""
        self._grammars = GrammarCompiler(self._config.model_path, vocab_size)
        # Reading the tokenizer takes a second: begun now, so that the first guided request need not wait.
        self._thread.submit(self._grammars.load)

    def find(self, spec: GenerationSpec) -> GenerationSpec | None:
        if spec.processors or spec.guided is None or self._grammars is None:
            return None
        grammar = self._grammars.find(spec.guided)
        return None if grammar is None else spec.with_grammar(grammar)

    async def prepare(self, spec: GenerationSpec) -> GenerationSpec:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._prepare, spec)

    def close(self) -> None:
        """No more specs. What is being prepared is left to end by itself."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _prepare(self, spec: GenerationSpec) -> GenerationSpec:
        """On the thread."""
        for entry in spec.processors:
            self._try(entry)
        if spec.guided is None:
            return spec
        if self._grammars is None:
            raise InternalError("a spec was prepared before the engine had started")
        return spec.with_grammar(self._grammars.compile(spec.guided))

    def _try(self, entry: ProcessorEntry) -> None:
        """An instance is made and thrown away: every choice gets one of its own later."""
        try:
            self._config.processors[entry.name](**entry.options)
        except Exception as exc:
            raise InvalidRequest(
                "annotations",
                f"logits-processor:{entry.name}",
                f"options that its factory accepts ({type(exc).__name__}: {exc})",
            ) from exc
