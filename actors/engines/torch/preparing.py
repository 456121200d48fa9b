"""Before a spec is submitted: its logits processors tried, its grammar tried and compiled.

Not in the event loop, and the grammar first in another process.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from actors.engines.torch.config import TorchConfig
from actors.engines.torch.grammars.cache import GrammarCache
from actors.engines.torch.grammars.limits import MOST_STUCK, PREPARE_S, READY_S, field_of
from actors.engines.torch.grammars.trials import Trials, as_tried
from actors.engines.torch.impatience import ImpatientThreads, TookTooLong, TooManyStuck
from actors.engines.torch.tried_processors import TriedProcessors
from protocols.bounds import Bound
from protocols.errors import EngineShutdown, InternalError, InvalidRequest, Overloaded, shorten
from protocols.spec import GenerationSpec, Guided, ProcessorEntry

if TYPE_CHECKING:
    from actors.engines.torch.grammars.compiler import CompiledGrammar
    from actors.engines.torch.grammars.vocabulary import Vocabulary

T = TypeVar("T")


class TorchPreparer:
    """Implements `protocols.engine.SpecPreparer`."""

    def __init__(self, config: TorchConfig) -> None:
        self._config = config
        # Apart, so that factories that are stuck hold up no grammar.
        self._factories = ImpatientThreads("torch-factory", MOST_STUCK)
        self._compilers = ImpatientThreads("torch-grammar", MOST_STUCK)
        self._tried = TriedProcessors(on_bound=config.on_bound)
        self._trials = Trials(config.on_bound)
        self._grammars = GrammarCache(on_bound=config.on_bound)
        # Or why there is none.
        self._vocabulary: Future[Vocabulary | str] = Future()
        self._vocab_size: int | None = None
        self._opened_s = 0.0
        self._is_closed = False

    def open(self, vocab_size: int) -> None:
        """The engine has started; ``vocab_size`` is the width of its logits. Nothing after `close`."""
        if self._is_closed:
            return
        self._vocab_size = vocab_size
        self._opened_s = time.monotonic()
        self._vocabulary.set_running_or_notify_cancel()
        # Reading the tokenizer takes a second: begun now, so that the first guided request need not wait.
        threading.Thread(target=self._read, args=(vocab_size,), name="torch-tokenizer", daemon=True).start()

    def find(self, spec: GenerationSpec) -> GenerationSpec | None:
        """A spec whose constraint was compiled, and whose processors were tried with equal options."""
        if not self._tried.has_all(spec.processors):
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
        if not self._tried.has_all(spec.processors):
            await self._within(self._factories, lambda: self._try_all(spec.processors), _slow_factory(spec))
            self._tried.keep(spec.processors)
        if spec.guided is None:
            return spec
        grammar = self._known(spec.guided) or await self._compiled(spec.guided, self._vocab_size)
        return spec.with_grammar(grammar)

    def close(self) -> None:
        """No more specs. What is being prepared ends by itself, or with the process. Idempotent."""
        self._is_closed = True
        self._trials.close()

    def _read(self, vocab_size: int) -> None:
        """A thread. Guided requests are told what went wrong; all others do without.

        It goes on as the one that keeps the process for trials: without a tokenizer there is none.
        """
        # It may import transformers: that takes seconds, and the loop should not wait for it.
        from actors.engines.torch.grammars.vocabulary import NoTokenizer, read_vocabulary  # noqa: PLC0415

        try:
            config = self._config
            vocabulary = read_vocabulary(
                config.model_path, vocab_size, trust_remote_code=config.trust_remote_code
            )
        except NoTokenizer as exc:
            self._vocabulary.set_result(str(exc))
        except BaseException as exc:
            # Also a panic of a library in another language.
            self._vocabulary.set_result(f"the model's tokenizer cannot be read ({type(exc).__name__})")
        else:
            self._vocabulary.set_result(vocabulary)
            self._trials.keep(vocabulary)

    async def _compiled(self, guided: Guided, vocab_size: int) -> CompiledGrammar:
        """Tried in another process, then compiled here, and kept."""
        vocabulary = await self._tokenizer(guided)
        # It comes back by itself, and with a better reason than that it took long.
        size = await self._within(
            self._compilers,
            lambda: self._trials.check(guided),
            _slow_grammar(guided),
            2 * (READY_S + PREPARE_S),
        )
        same = Guided(kind=guided.kind, constraint=as_tried(guided))
        compiling = partial(_compile, same, vocabulary, vocab_size)
        grammar = await self._within(self._compilers, compiling, _slow_grammar(guided))
        self._grammars.keep(guided, grammar, size)
        return grammar

    async def _within(
        self,
        threads: ImpatientThreads,
        work: Callable[[], T],
        too_long: InvalidRequest,
        limit_s: float | None = None,
    ) -> T:
        """What the work returns, or the refusal for what takes too long."""
        try:
            return await threads.run(work, PREPARE_S if limit_s is None else limit_s)
        except TookTooLong:
            self._config.on_bound(Bound.PREPARING_TIME)
            raise too_long from None
        except TooManyStuck:
            raise Overloaded(
                "preparing_full", f"{MOST_STUCK} grammars or logits processors are taking too long already"
            ) from None

    async def _tokenizer(self, guided: Guided) -> Vocabulary:
        """Raises Overloaded at once when it has been read for too long already: others wait behind."""
        reading = asyncio.wrap_future(self._vocabulary)
        await asyncio.wait({reading}, timeout=max(0.0, self._opened_s + READY_S - time.monotonic()))
        if not reading.done():
            raise Overloaded("preparing_full", "the tokenizer is still being read")
        vocabulary = reading.result()
        if isinstance(vocabulary, str):
            raise InvalidRequest(field_of(guided.kind), guided.constraint, f"nothing: {vocabulary}")
        return vocabulary

    def _known(self, guided: Guided) -> CompiledGrammar | None:
        try:
            return self._grammars.find(guided)
        except InvalidRequest:
            # `prepare` says so.
            return None

    def _try_all(self, entries: tuple[ProcessorEntry, ...]) -> None:
        """On a thread. Instances are made and thrown away: every choice gets ones of its own later."""
        for entry in entries:
            try:
                self._config.processors[entry.name](**entry.options)
            except BaseException as exc:
                # SystemExit, too: the operator's code wanted to end, and not the worker.
                raise InvalidRequest(
                    "annotations",
                    f"logits-processor:{entry.name}",
                    f"options that its factory accepts ({_complaint(exc)})",
                ) from exc


def _compile(guided: Guided, vocabulary: Vocabulary, vocab_size: int) -> CompiledGrammar:
    """On a thread."""
    # It imports torch; the loop should not wait for it.
    from actors.engines.torch.grammars.compiler import compile_grammar  # noqa: PLC0415

    return compile_grammar(guided, vocabulary, vocab_size)


def _complaint(exc: BaseException) -> str:
    """Of the operator's code. Its words only where they are about the options, and only the first ones."""
    name = type(exc).__name__
    if not isinstance(exc, ValueError | TypeError):
        return name
    try:
        lines = str(exc).splitlines()
    except Exception:
        return name
    return f"{name}: {shorten(lines[0])}" if lines else name


def _slow_factory(spec: GenerationSpec) -> InvalidRequest:
    names = ", ".join(entry.name for entry in spec.processors)
    allowed = f"a logits processor that is made within {PREPARE_S:g} s"
    return InvalidRequest("annotations", f"logits-processor:{names}", allowed)


def _slow_grammar(guided: Guided) -> InvalidRequest:
    allowed = f"a constraint that is prepared within {PREPARE_S:g} s"
    return InvalidRequest(field_of(guided.kind), guided.constraint, allowed)
