"""The console script with an engine that sleeps: ``python -m tests.doubles.sleeping_worker OPTIONS``.

Everything is the real thing, the synthetic engine too; it also gives memory back that it does not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.doubles.changed_engine import serve_changed
from tests.doubles.maintenance import MoodyMaintenance

if TYPE_CHECKING:
    from protocols.engine import Engine
    from tests.doubles.changed_engine import Change


def sleeping() -> Change:
    """Let the engine that the worker builds be one that can sleep."""

    def let_sleep(engine: Engine) -> Engine:
        memory = MoodyMaintenance(lambda: False)
        # Of its class, since some have it as a property; there is one engine in this process.
        setattr(type(engine), "maintenance", property(lambda _: memory, lambda _, __: None))  # noqa: B010
        return engine

    return let_sleep


if __name__ == "__main__":
    serve_changed(sleeping)
