"""Before a spec is submitted: its logits processors tried, its grammar tried and compiled.

Not in the event loop, and the grammar first in another process.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from actors.engines.grammars.cache import ConstraintCache
from actors.engines.grammars.constraint_trials import ConstraintTrials
from actors.engines.grammars.trials import as_tried
from actors.engines.processor_trials import ProcessorTrials
from actors.engines.torch.config import TorchConfig
from protocols.errors import EngineShutdown, InternalError, InvalidRequest
from protocols.spec import GenerationSpec, Guided

if TYPE_CHECKING:
    from actors.engines.grammars.vocabulary import Vocabulary
    from actors.engines.torch.grammars.compiler import CompiledGrammar


class TorchPreparer:
    """Implements `protocols.engine.SpecPreparer`."""

    def __init__(self, config: TorchConfig) -> None:
        self._processors = ProcessorTrials(config.processors, config.on_bound)
        self._constraints = ConstraintTrials(
            config.model_path, trust_remote_code=config.trust_remote_code, on_bound=config.on_bound
        )
        self._grammars: ConstraintCache[CompiledGrammar] = ConstraintCache(on_bound=config.on_bound)
        self._vocab_size: int | None = None
        self._is_closed = False

    def open(self, vocab_size: int) -> None:
        """The engine has started; ``vocab_size`` is the width of its logits. Nothing after `close`."""
        if not self._is_closed:
            self._vocab_size = vocab_size
            self._constraints.open(vocab_size)

    def find(self, spec: GenerationSpec) -> GenerationSpec | None:
        """A spec whose constraint was compiled, and whose processors were tried with equal options."""
        if not self._processors.knows(spec):
            return None
        if spec.guided is None:
            return spec
        grammar = self._known(spec.guided)
        return None if grammar is None else spec.with_grammar(grammar)

    async def prepare(self, spec: GenerationSpec) -> GenerationSpec:
        """As the protocol says. Raises Overloaded for what nobody can be blamed for: see the text."""
        if self._is_closed:
            raise EngineShutdown("the engine was stopped")
        if self._vocab_size is None:
            raise InternalError("a spec was prepared before the engine had started")
        await self._processors.try_out(spec)
        if spec.guided is None:
            return spec
        grammar = self._known(spec.guided) or await self._compiled(spec.guided, self._vocab_size)
        return spec.with_grammar(grammar)

    def close(self) -> None:
        """No more specs. What is being prepared ends by itself, or with the process. Idempotent."""
        self._is_closed = True
        self._constraints.close()

    async def _compiled(self, guided: Guided, vocab_size: int) -> CompiledGrammar:
        """Tried in another process, then compiled here, and kept."""
        vocabulary, size = await self._constraints.check(guided)
        same = Guided(kind=guided.kind, constraint=as_tried(guided))
        grammar = await self._constraints.run(guided, partial(_compile, same, vocabulary, vocab_size))
        self._grammars.keep(guided, grammar, size)
        return grammar

    def _known(self, guided: Guided) -> CompiledGrammar | None:
        try:
            return self._grammars.find(guided)
        except InvalidRequest:
            # `prepare` says so.
            return None


def _compile(guided: Guided, vocabulary: Vocabulary, vocab_size: int) -> CompiledGrammar:
    """On a thread."""
    # It imports torch; the loop should not wait for it.
    from actors.engines.torch.grammars.compiler import compile_grammar  # noqa: PLC0415

    return compile_grammar(guided, vocabulary, vocab_size)
