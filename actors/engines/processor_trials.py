"""Logits processors are made once, and thrown away, before the engine sees a request that asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from actors.engines.grammars.limits import PREPARE_S
from actors.engines.limited_work import LimitedWork
from actors.engines.tried_processors import TriedProcessors
from protocols.bounds import OnBound, ignore_bound
from protocols.errors import InvalidRequest, shorten
from protocols.spec import GenerationSpec, ProcessorEntry


class ProcessorTrials:
    """Event loop. factories: of the operator, by name. on_bound: told of what takes long or makes room."""

    def __init__(
        self, factories: Mapping[str, Callable[..., object]], on_bound: OnBound = ignore_bound
    ) -> None:
        self._factories = factories
        self._work = LimitedWork("processor-factory", on_bound)
        self._tried = TriedProcessors(on_bound=on_bound)

    def knows(self, spec: GenerationSpec) -> bool:
        """Whether all of its processors were made before, with equal options."""
        return self._tried.has_all(spec.processors)

    async def try_out(self, spec: GenerationSpec) -> None:
        """Make those of its processors that are not known.

        Raises InvalidRequest for options that a factory refuses or that take too long; Overloaded.
        """
        if self.knows(spec):
            return
        await self._work.run(lambda: self._make_all(spec.processors), _slow_factory(spec))
        self._tried.keep(spec.processors)

    def _make_all(self, entries: tuple[ProcessorEntry, ...]) -> None:
        """On a thread. Instances are made and thrown away: every choice gets ones of its own later."""
        for entry in entries:
            try:
                self._factories[entry.name](**entry.options)
            except BaseException as exc:
                # SystemExit, too: the operator's code wanted to end, and not the worker.
                raise InvalidRequest(
                    "annotations",
                    f"logits-processor:{entry.name}",
                    f"options that its factory accepts ({_complaint(exc)})",
                ) from exc


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
