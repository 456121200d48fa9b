"""Before a spec is submitted: its hand-off read, its logits processors tried, its constraint tried.

TensorRT-LLM compiles a constraint in its own loop, where a bad one was the end of everybody more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from actors.engines.grammars.cache import ConstraintCache
from actors.engines.grammars.constraint_trials import ConstraintTrials
from actors.engines.grammars.trial_child import Court
from actors.engines.grammars.trials import as_tried
from actors.engines.processor_trials import ProcessorTrials
from actors.engines.trtllm.config import TrtllmConfig
from actors.engines.trtllm.constraints.guiding import Backend, Guide, backend_of, guide_of
from protocols.errors import EngineShutdown, InternalError, InvalidRequest
from protocols.spec import GenerationSpec, Guided

Decode = Callable[[Mapping[str, Any]], object]
"""The driver's form of a hand-off. Returns at once; raises InvalidRequest."""

# By name: only the process for trials imports it. xgrammar looks at the whole vocabulary for a constraint:
# with 49,152 tokens a string of bounded length takes it 1.8 s, which the engine shares out to 8 threads.
_COURTS = {
    Backend.XGRAMMAR: Court("actors.engines.trtllm.constraints.judging:xgrammar_judge", cpu_s=4.0),
    Backend.LLGUIDANCE: Court("actors.engines.trtllm.constraints.judging:llguidance_judge"),
}


class TrtllmPreparer:
    """Implements `protocols.engine.SpecPreparer`. Event loop.

    decode: what reads hand-offs; None in a worker that gets none. Raises EngineStartError for a back-end
    that nobody knows.
    """

    def __init__(self, config: TrtllmConfig, decode: Decode | None = None) -> None:
        self._decode = decode
        self._vocab_size = config.vocab_size
        self._processors = ProcessorTrials(config.processors, config.on_bound)
        self._backend = backend_of(config.guided_backend)
        self._constraints = None if self._backend is None else _trials(config, self._backend)
        self._guides: ConstraintCache[Guide] = ConstraintCache(on_bound=config.on_bound)
        self._is_open = self._is_closed = False

    def open(self) -> None:
        """The engine has started. Nothing after `close`."""
        if self._is_closed:
            return
        self._is_open = True
        if self._constraints is not None:
            self._constraints.open(self._vocab_size)

    def find(self, spec: GenerationSpec) -> GenerationSpec | None:
        """As the protocol says; a hand-off is always read at once."""
        spec = self._read(spec)
        if not self._processors.knows(spec):
            return None
        if spec.guided is None:
            return spec
        guide = self._known(spec.guided)
        return None if guide is None else spec.with_grammar(guide)

    async def prepare(self, spec: GenerationSpec) -> GenerationSpec:
        """As the protocol says. Raises Overloaded for what nobody can be blamed for: see the text."""
        if self._is_closed:
            raise EngineShutdown("the engine was stopped")
        if not self._is_open:
            raise InternalError("a spec was prepared before the engine had started")
        spec = self._read(spec)
        await self._processors.try_out(spec)
        if spec.guided is None:
            return spec
        return spec.with_grammar(self._known(spec.guided) or await self._tried(spec.guided))

    def close(self) -> None:
        """No more specs. What is being prepared ends by itself, or with the process. Idempotent."""
        self._is_closed = True
        if self._constraints is not None:
            self._constraints.close()

    def _read(self, spec: GenerationSpec) -> GenerationSpec:
        """Raises InvalidRequest for a hand-off that cannot be read."""
        if spec.handoff is None or self._decode is None:
            return spec
        return spec.with_handoff(self._decode(spec.handoff))

    async def _tried(self, guided: Guided) -> Guide:
        """Tried in another process, then written here as it was there, and kept."""
        if self._constraints is None or self._backend is None:
            raise InternalError("a constraint was let through without a back-end for it")
        await self._constraints.check(guided)
        same = Guided(kind=guided.kind, constraint=as_tried(guided))
        guide = await self._constraints.run(guided, partial(guide_of, same, self._backend))
        self._guides.keep(guided, guide, len(guide.text))
        return guide

    def _known(self, guided: Guided) -> Guide | None:
        try:
            return self._guides.find(guided)
        except InvalidRequest:
            # `prepare` says so.
            return None


def _trials(config: TrtllmConfig, backend: Backend) -> ConstraintTrials:
    """With the tokenizer that the engine has."""
    tokenizer = config.arguments.get("tokenizer")
    return ConstraintTrials(
        Path(tokenizer) if isinstance(tokenizer, str | Path) else config.model_path,
        trust_remote_code=bool(config.arguments.get("trust_remote_code", False)),
        court=_COURTS[backend],
        on_bound=config.on_bound,
    )
