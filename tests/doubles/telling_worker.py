"""The console script with an engine that tells: ``python -m tests.doubles.telling_worker OPTIONS``.

Everything is the real thing, the synthetic engine too; it also writes a line of JSON for each request that
it is given into the file TOLD_FILE: its engine id and the trace headers that came with it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tests.doubles.changed_engine import serve_changed

if TYPE_CHECKING:
    from protocols.engine import Engine
    from protocols.spec import GenerationSpec
    from protocols.steps import EngineId
    from tests.doubles.changed_engine import Change


def telling() -> Change:
    """Let the engine that the worker builds tell what it is given."""
    told = Path(os.environ["TOLD_FILE"])

    def tell(engine: Engine) -> Engine:
        submit = engine.submit

        def submit_and_tell(engine_id: EngineId, spec: GenerationSpec) -> None:
            line = json.dumps({"engine_id": engine_id, "headers": dict(spec.trace_headers)})
            with told.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
            submit(engine_id, spec)

        setattr(engine, "submit", submit_and_tell)  # noqa: B010 - the engine itself, heard
        return engine

    return tell


if __name__ == "__main__":
    serve_changed(telling)
