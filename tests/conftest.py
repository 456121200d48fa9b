"""What tests share: the fake clock, the order of tasks, Hypothesis profiles, and the audit of every graph."""

from __future__ import annotations

import logging
import os
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from trio.testing import MockClock

from tests.doubles.scheduling import seeded_scheduler

# Several test processes share the cores: threads of operators would wait for each other in every one of them.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from tests.actors.world import World
    from tests.doubles.engines import ScriptedEngine

    OpenWorld = Callable[..., AbstractAsyncContextManager[World]]

# Assertions of the conformance kit explain themselves as those of a test module do.
pytest.register_assert_rewrite(
    "tests.conformance.promises_abort",
    "tests.conformance.promises_flow",
    "tests.conformance.promises_life",
    "tests.conformance.promises_output",
    "tests.conformance.promises_pause",
    "tests.conformance.reader",
)

# A shell without job control starts what it puts into the background with SIGINT ignored, and children
# inherit that; those of a test must be able to be interrupted.
signal.signal(signal.SIGINT, signal.default_int_handler)

# `make test` runs the same examples everywhere; HYPOTHESIS_PROFILE=fuzz looks for new ones.
_COMMON: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow],
}
settings.register_profile("repeatable", derandomize=True, **_COMMON)
settings.register_profile("fuzz", max_examples=5_000, print_blob=True, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A module is run by one process, and so are all tests that share the stack with the real model."""
    for item in items:
        fixtures: list[str] = getattr(item, "fixturenames", [])
        group = "model_stack" if "model_stack" in fixtures else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    """Trio on a clock that jumps to the next deadline as soon as nothing else can run.

    Tests of what belongs to asyncio (facade, supervisor, bridge) override this with asyncio and uvloop.
    """
    return "trio", {"clock": MockClock(autojump_threshold=0)}


@pytest.fixture(autouse=True)
def _repeatable_order() -> Iterator[None]:
    """Trio's shuffle of runnable tasks is the same in every run; another order: SCHEDULER_SEED=1."""
    with seeded_scheduler(int(os.environ.get("SCHEDULER_SEED", "0"))):
        yield


@pytest.fixture
def open_world() -> Iterator[OpenWorld]:
    """Open graphs around engine doubles; each is audited after it has closed, also after a crash."""
    from tests.actors.world import open_world as open_audited

    opened: list[World] = []

    @asynccontextmanager
    async def open_one(engine: ScriptedEngine | None = None, **bounds: Any) -> AsyncIterator[World]:
        async with open_audited(engine, **bounds) as world:
            opened.append(world)
            yield world

    yield open_one
    for world in opened:
        world.check_closed()


@pytest.fixture(autouse=True)
def own_loggers() -> Iterator[None]:
    """Our loggers keep their handlers: a worker in this process adds one that nobody takes off."""
    loggers = [logging.getLogger(name) for name in ("actor", "actors", "service")]
    before = [(logger, logger.handlers[:], logger.propagate) for logger in loggers]
    yield
    for logger, handlers, is_passed_on in before:
        logger.handlers[:], logger.propagate = handlers, is_passed_on
