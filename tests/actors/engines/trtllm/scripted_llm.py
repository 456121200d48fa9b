"""An ``LLM`` whose every answer a test says by hand, and which fails as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
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

    async def __aiter__(self) -> AsyncIterator[Result]:
        while (news := await self._news.get()) is not None:
            if isinstance(news, BaseException):
                self.error = str(news)
                raise news
            yield news
            if news.finished:
                return


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
