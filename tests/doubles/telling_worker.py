"""The console script with an engine that tells: ``python -m tests.doubles.telling_worker OPTIONS``.

Everything is the real thing, the synthetic engine too; it also writes a line of JSON for each request that
it is given into the file TOLD_FILE: its engine id and the trace headers that came with it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import service.main

if TYPE_CHECKING:
    from actors.engines.synthetic import SyntheticEngine
    from protocols.engine import Engine
    from protocols.spec import GenerationSpec
    from protocols.steps import EngineId
    from service.stopping import StopSignals


def _make_telling() -> None:
    """Let the engine that the worker builds tell what it is given."""
    from service import assembly

    told = Path(os.environ["TOLD_FILE"])
    build_engine = assembly.build_engine

    def build_telling(*what: Any) -> Engine:
        engine = cast("SyntheticEngine", build_engine(*what))
        submit = engine.submit

        def submit_and_tell(engine_id: EngineId, spec: GenerationSpec) -> None:
            line = json.dumps({"engine_id": engine_id, "headers": dict(spec.trace_headers)})
            with told.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
            submit(engine_id, spec)

        setattr(engine, "submit", submit_and_tell)  # noqa: B010 - the engine itself, heard
        return engine

    setattr(assembly, "build_engine", build_telling)  # noqa: B010 - its parameters are not ours to repeat


def main() -> None:
    """Signals first, as in the console script; the engine is changed when it begins to serve."""
    dispatch = service.main._dispatch

    def dispatch_telling(command: str, rest: list[str], signals: StopSignals) -> int:
        _make_telling()
        return dispatch(command, rest, signals)

    service.main._dispatch = dispatch_telling
    service.main.entry_point()


if __name__ == "__main__":
    main()
