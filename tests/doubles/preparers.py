"""Preparers of specs that tests hold back, and that fail in every way a preparer can."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from protocols.spec import GenerationSpec


class HeldPreparer:
    """Prepares for as long as the test wants, and then what the test wants. Insists on one caller at a time.

    Constraints that were prepared once are found afterwards.
    """

    def __init__(self) -> None:
        self.asked: list[GenerationSpec] = []
        self.current: GenerationSpec | None = None
        self.cancelled = 0
        self._known: set[object] = set()
        self._error: BaseException | None = None
        self._released = anyio.Event()

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits for `release`."""
        return self.current is not None

    def find(self, spec: GenerationSpec) -> GenerationSpec | None:
        return _prepared(spec) if constraint_of(spec) in self._known else None

    async def prepare(self, spec: GenerationSpec) -> GenerationSpec:
        assert self.current is None, "two specs are prepared at once"
        assert spec.guided is None or spec.guided.grammar is None, "a spec is prepared twice"
        self.asked.append(spec)
        self.current, self._error, self._released = spec, None, anyio.Event()
        try:
            await self._released.wait()
        except BaseException:
            self.cancelled += 1
            raise
        finally:
            self.current = None
        if self._error is not None:
            raise self._error
        self._known.add(constraint_of(spec))
        return _prepared(spec)

    def release(self, error: BaseException | None = None) -> None:
        """The spec under way is ready, or fails with this."""
        assert self.current is not None, "nothing is being prepared"
        self._error = error
        self._released.set()


def constraint_of(spec: GenerationSpec) -> object:
    """What tells guided requests apart."""
    return None if spec.guided is None else spec.guided.constraint


def _prepared(spec: GenerationSpec) -> GenerationSpec:
    return spec.with_grammar(f"grammar of {constraint_of(spec)}")
