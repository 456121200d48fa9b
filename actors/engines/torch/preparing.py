"""Before a spec is submitted: its grammar compiled, its logits processors tried. Not in the event loop."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from actors.engines.torch.config import TorchConfig
from actors.engines.torch.grammars.cache import GrammarCache
from actors.engines.torch.grammars.limits import MOST_STUCK, PREPARE_S, field_of
from actors.engines.torch.impatience import ImpatientThreads, TookTooLong, TooManyStuck
from protocols.errors import EngineShutdown, InternalError, InvalidRequest, Overloaded
from protocols.spec import GenerationSpec, Guided, ProcessorEntry

if TYPE_CHECKING:
    from actors.engines.torch.grammars.compiler import CompiledGrammar
    from actors.engines.torch.grammars.vocabulary import Vocabulary

# The tokenizer is read in the background; on a busy machine the first request may have to wait for it.
_TOKENIZER_S = 60.0


class TorchPreparer:
    """Implements `protocols.engine.SpecPreparer`."""

    def __init__(self, config: TorchConfig) -> None:
        self._config = config
        self._threads = ImpatientThreads("torch-prepare", MOST_STUCK)
        self._grammars = GrammarCache()
        # Or why there is none.
        self._vocabulary: Future[Vocabulary | str] = Future()
        self._vocab_size: int | None = None
        self._is_closed = False

    def open(self, vocab_size: int) -> None:
        """The engine has started; ``vocab_size`` is the width of its logits. Nothing after `close`."""
        if self._is_closed:
            return
        self._vocab_size = vocab_size
        self._vocabulary.set_running_or_notify_cancel()
        # Reading the tokenizer takes a second: begun now, so that the first guided request need not wait.
        threading.Thread(target=self._read, args=(vocab_size,), name="torch-tokenizer", daemon=True).start()

    def find(self, spec: GenerationSpec) -> GenerationSpec | None:
        """A spec without processors whose constraint is known."""
        if spec.processors or spec.guided is None:
            return None
        grammar = self._known(spec.guided)
        return None if grammar is None else spec.with_grammar(grammar)

    async def prepare(self, spec: GenerationSpec) -> GenerationSpec:
        """As the protocol says. Raises Overloaded while too many preparations are stuck."""
        if self._is_closed:
            raise EngineShutdown("the engine was stopped")
        if self._vocab_size is None:
            raise InternalError("a spec was prepared before the engine had started")
        vocabulary = None if spec.guided is None else await self._tokenizer(spec.guided)
        try:
            return await self._threads.run(lambda: self._prepare(spec, vocabulary), PREPARE_S)
        except TookTooLong:
            raise self._too_long(spec) from None
        except TooManyStuck:
            raise Overloaded(
                "preparing_full", f"{MOST_STUCK} grammars or logits processors are taking too long already"
            ) from None

    def close(self) -> None:
        """No more specs. What is being prepared ends by itself, or with the process. Idempotent."""
        self._is_closed = True

    def _read(self, vocab_size: int) -> None:
        """A thread. Guided requests are told what went wrong; all others do without."""
        # It imports torch and transformers: that takes seconds, and the loop should not wait for it.
        from actors.engines.torch.grammars.vocabulary import NoTokenizer, read_vocabulary  # noqa: PLC0415

        try:
            config = self._config
            vocabulary = read_vocabulary(
                config.model_path, vocab_size, trust_remote_code=config.trust_remote_code
            )
            self._vocabulary.set_result(vocabulary)
        except NoTokenizer as exc:
            self._vocabulary.set_result(str(exc))
        except BaseException as exc:
            # Also a panic of a library in another language.
            self._vocabulary.set_result(f"the model's tokenizer cannot be read ({type(exc).__name__})")

    async def _tokenizer(self, guided: Guided) -> Vocabulary:
        reading = asyncio.wrap_future(self._vocabulary)
        await asyncio.wait({reading}, timeout=_TOKENIZER_S)
        if not reading.done():
            raise Overloaded("preparing_full", "the tokenizer is still being read")
        vocabulary = reading.result()
        if isinstance(vocabulary, str):
            raise InvalidRequest(field_of(guided.kind), guided.constraint, f"nothing: {vocabulary}")
        return vocabulary

    def _prepare(self, spec: GenerationSpec, vocabulary: Vocabulary | None) -> GenerationSpec:
        """On a thread."""
        for entry in spec.processors:
            self._try(entry)
        if spec.guided is None or vocabulary is None or self._vocab_size is None:
            return spec
        grammar = self._known(spec.guided)
        if grammar is None:
            from actors.engines.torch.grammars.compiler import compile_grammar  # noqa: PLC0415 - see `_read`

            grammar = compile_grammar(spec.guided, vocabulary, self._vocab_size)
            self._grammars.keep(spec.guided, grammar)
        return spec.with_grammar(grammar)

    def _known(self, guided: Guided) -> CompiledGrammar | None:
        try:
            return self._grammars.find(guided)
        except InvalidRequest:
            # `prepare` says so.
            return None

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

    def _too_long(self, spec: GenerationSpec) -> InvalidRequest:
        """Which of both it was cannot be said when a request has both."""
        if spec.guided is None:
            names = ", ".join(entry.name for entry in spec.processors)
            allowed = f"a logits processor that is made within {PREPARE_S:g} s"
            return InvalidRequest("annotations", f"logits-processor:{names}", allowed)
        allowed = f"a constraint that is prepared within {PREPARE_S:g} s"
        return InvalidRequest(field_of(spec.guided.kind), spec.guided.constraint, allowed)
