"""What any engine's driver is built with, whatever the settings say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from protocols.bounds import OnBound
from service.models import ResolvedModel
from service.processors.imports import Factory

# A stage of an engine's start, and how much of the start is done: 0 to 1. Called in the engine's thread.
Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineNeeds:
    """What any driver is built with beside the settings.

    processors: factories of what requests may choose. on_bound: told when a bound of the engine is reached.
    """

    model: ResolvedModel
    processors: Mapping[str, Factory]
    on_bound: OnBound
    progress: Progress
