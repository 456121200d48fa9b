"""What an engine needs to try constraints: the model's tokenizer, the process for trials, and threads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from actors.engines.grammars.limits import PREPARE_S, READY_S, field_of
from actors.engines.grammars.trial_child import Court
from actors.engines.grammars.trials import LLGUIDANCE, Trials
from actors.engines.limited_work import LimitedWork
from protocols.bounds import OnBound, ignore_bound
from protocols.errors import InvalidRequest, Overloaded
from protocols.spec import Guided

if TYPE_CHECKING:
    from actors.engines.grammars.vocabulary import Vocabulary

T = TypeVar("T")


class ConstraintTrials:
    """Event loop. folder: of the model. court: what tries constraints.

    on_bound: told of constraints that take too long or cost too much.
    """

    def __init__(
        self,
        folder: Path,
        *,
        trust_remote_code: bool = False,
        court: Court = LLGUIDANCE,
        on_bound: OnBound = ignore_bound,
    ) -> None:
        self._folder = folder
        self._trust_remote_code = trust_remote_code
        self._work = LimitedWork("constraint", on_bound)
        self._trials = Trials(on_bound, court)
        # Or why there is none.
        self._vocabulary: Future[Vocabulary | str] = Future()
        self._opened_s = 0.0

    def open(self, vocab_size: int) -> None:
        """Once. Reading the tokenizer takes a second: begun now, so that no request need wait for it."""
        self._opened_s = time.monotonic()
        self._vocabulary.set_running_or_notify_cancel()
        threading.Thread(target=self._read, args=(vocab_size,), name="tokenizer", daemon=True).start()

    async def check(self, guided: Guided) -> tuple[Vocabulary, int]:
        """The model's vocabulary, and the bytes that the compiled constraint takes.

        Raises InvalidRequest for a constraint that cannot be obeyed; Overloaded for what is not its fault.
        """
        vocabulary = await self._tokenizer(guided)
        # It comes back by itself, and with a better reason than that it took long.
        limit_s = 2 * (READY_S + PREPARE_S)
        return vocabulary, await self.run(guided, lambda: self._trials.check(guided), limit_s)

    async def run(self, guided: Guided, work: Callable[[], T], limit_s: float | None = None) -> T:
        """Other work for a constraint, on a thread; refused by name when it takes too long."""
        allowed = f"a constraint that is prepared within {PREPARE_S:g} s"
        slow = InvalidRequest(field_of(guided.kind), guided.constraint, allowed)
        return await self._work.run(work, slow, limit_s)

    def close(self) -> None:
        """The process for trials ends. Idempotent."""
        self._trials.close()

    def _read(self, vocab_size: int) -> None:
        """A thread. Guided requests are told what went wrong; all others do without.

        It goes on as the one that keeps the process for trials: without a tokenizer there is none.
        """
        # It may import transformers: that takes seconds, and the loop should not wait for it.
        from actors.engines.grammars.vocabulary import NoTokenizer, read_vocabulary  # noqa: PLC0415

        try:
            vocabulary = read_vocabulary(self._folder, vocab_size, trust_remote_code=self._trust_remote_code)
        except NoTokenizer as exc:
            self._vocabulary.set_result(str(exc))
        except BaseException as exc:
            # Also a panic of a library in another language.
            self._vocabulary.set_result(f"the model's tokenizer cannot be read ({type(exc).__name__})")
        else:
            self._vocabulary.set_result(vocabulary)
            self._trials.keep(vocabulary)

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
