"""An ``LLM`` whose every answer a test says by hand, and which fails as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.actors.engines.trtllm.scripted import Output, Result

if TYPE_CHECKING:
    from actors.engines.trtllm.library import Library


class ScriptedOutput:
    """A ``RequestOutput``: shows what the test puts into it, until its last result or an exception."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked
        self.aborts = 0
        self.abort_error: Exception | None = None
        self.error: str | None = None
        # Whose errors are raised: the library's queue has some of others, which leave this one as it is.
        self.is_blamed = True
        # As it stands, for whoever reads it beside the iteration.
        self.outputs: list[Output] = []
        self.finished = False
        self.cached_tokens = 0
        self._is_read = False
        self._news: asyncio.Queue[Result | Exception | None] = asyncio.Queue()

    def show(self, *outputs: Output, finished: bool = False, **fields: Any) -> None:
        """One response."""
        self._news.put_nowait(Result(list(outputs), finished=finished, **fields))

    def raise_(self, exc: Exception) -> None:
        """In place of the next response."""
        self._news.put_nowait(exc)

    def end(self) -> None:
        """The iterator ends, without a last response."""
        self._news.put_nowait(None)

    def abort(self) -> None:
        self.aborts += 1
        if self.abort_error is not None:
            raise self.abort_error

    def __aiter__(self) -> ScriptedOutput:
        return self

    async def __anext__(self) -> Result:
        news = None if self._is_read else await self._news.get()
        if isinstance(news, BaseException):
            self._is_read = self.is_blamed
            self.error = str(news) if self.is_blamed else None
            raise news
        if news is None:
            raise StopAsyncIteration
        self._is_read = news.finished
        return news


class ScriptedLLM:
    """errors: raised by the next calls of `generate_async`, one each."""

    def __init__(self) -> None:
        self.outputs: list[ScriptedOutput] = []
        self.errors: list[Exception] = []
        self.is_well = True
        self._executor: Any = SimpleNamespace(_fatal_error=None, is_shutdown=lambda: False)

    def generate_async(self, **asked: Any) -> ScriptedOutput:
        if self.errors:
            raise self.errors.pop(0)
        self.outputs.append(ScriptedOutput(asked))
        return self.outputs[-1]

    def _check_health(self) -> bool:
        return self.is_well

    def break_for_good(self, cause: Exception) -> None:
        """What the library notes when it cannot go on."""
        self.is_well = False
        self._executor._fatal_error = cause


def errors_of(library: Library) -> Iterator[Exception]:
    """Errors that one request's data may cause."""
    yield library.RequestError("the prompt is too long")
    yield library.RequestError("out of memory for this request")
    yield ValueError("top_k")
    yield AssertionError()
