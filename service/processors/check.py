"""What ``--check-config`` says about logits processors. Runs the operator's code, but loads no model."""

from __future__ import annotations

from collections.abc import Iterator

from service.options import (
    ConfigError,
    EngineChoiceError,
    EngineFacts,
    Finding,
    Settings,
    choose_engine,
)
from service.processors.engine_limits import remarks
from service.processors.imports import ENGINES_ELSEWHERE, load_processors


def check_processors(settings: Settings, facts: EngineFacts) -> Iterator[Finding]:
    """A line for everything that is wrong, or one with what requests may choose."""
    try:
        choice = choose_engine(settings.engine.requested, facts, settings.engine.tensorrt_options)
    except EngineChoiceError:
        # Told by the check of the engine.
        return
    try:
        names = list(load_processors(settings, choice.engine))
    except ConfigError as error:
        yield from (Finding("error", "logits processors", str(problem)) for problem in error.problems)
        return
    if names:
        yield Finding("ok", "logits processors", ", ".join(names))
    if names and choice.engine in ENGINES_ELSEWHERE and settings.engine_arguments is not None:
        for text in remarks(settings.engine_arguments):
            yield Finding("warning", "logits processors", text)
