"""A signal at every moment of a start and of an end, to real processes that wait at that moment."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.waiting import wait_log
from tests.faults.moments import (
    BOTH,
    Gate,
    listed,
    moment_stack,
    starting,
    wait_handled,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.engines import Served
    from tests.e2e.stacks import Worker

pytestmark = [pytest.mark.e2e, pytest.mark.each_engine, pytest.mark.timeout(180)]


@contextmanager
def starting_at(served: Served, moment: str, folder: Path, model: Path) -> Iterator[tuple[Worker, Gate]]:
    """A worker that has come to this moment of its start. Afterwards nothing is listed."""
    gate = Gate.in_folder(folder)
    with starting(moment_stack(served, folder, model, moment, gate, has_frontend=False)) as worker:
        wait_log(worker, f"at {moment}")
        yield worker, gate
    assert listed(folder / "stack") == []


@contextmanager
def stopping_at(served: Served, moment: str, folder: Path, model: Path) -> Iterator[tuple[Worker, Gate]]:
    """An idle worker that was told to stop and has come to this moment. Afterwards nothing is listed."""
    gate = Gate.in_folder(folder)
    with starting(moment_stack(served, folder, model, moment, gate, has_frontend=False)) as worker:
        wait_log(worker, "engine.ready")
        worker.send(signal.SIGTERM)
        wait_log(worker, f"at {moment}")
        yield worker, gate
    assert listed(folder / "stack") == []


@pytest.mark.parametrize("number", BOTH)
def test_a_signal_while_the_options_are_read_ends_the_start_with_0(
    served: Served, word_model: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """The configuration file does not come: the console script waits for it, and for nobody else."""
    gate = Gate.in_folder(tmp_path, "options.yaml")
    stack = served.stack(tmp_path / "stack", word_model, "--config", str(gate.path), has_frontend=False)
    with starting(stack) as worker:
        held = gate.wait_reader()
        worker.send(number)
        assert worker.child.wait(20) == 0
        os.close(held)
    assert "Traceback" not in worker.log()


@pytest.mark.parametrize("number", BOTH)
@pytest.mark.parametrize("moment", ["model", "load"])
def test_a_signal_before_the_engine_is_there_ends_the_start_with_0(
    served: Served, word_model: Path, tmp_path: Path, moment: str, number: signal.Signals
) -> None:
    """Fetching the model's files, loading the engine: nobody waits for their end."""
    with starting_at(served, moment, tmp_path, word_model) as (worker, _):
        worker.send(number)
        assert worker.child.wait(20) == 0


@pytest.mark.parametrize("number", BOTH)
@pytest.mark.parametrize("moment", ["registration", "serving"])
def test_a_signal_between_start_and_service_ends_with_0(
    served: Served, word_model: Path, tmp_path: Path, moment: str, number: signal.Signals
) -> None:
    """The engine is there, the worker not yet in discovery: it leaves nothing in the store."""
    with starting_at(served, moment, tmp_path, word_model) as (worker, gate):
        worker.send(number)
        wait_handled(worker.child.pid)
        gate.open()
        assert worker.child.wait(30) == 0


@pytest.mark.parametrize("moment", ["load", "registration", "serving"])
def test_a_second_signal_during_the_start_ends_with_70(
    served: Served, word_model: Path, tmp_path: Path, moment: str
) -> None:
    """Whoever asks twice is told that it was forced."""
    with starting_at(served, moment, tmp_path, word_model) as (worker, gate):
        # Stopped, it gets both at once.
        worker.send(signal.SIGSTOP)
        worker.send(signal.SIGTERM)
        worker.send(signal.SIGINT)
        worker.send(signal.SIGCONT)
        wait_handled(worker.child.pid)
        if moment != "load":
            gate.open()
        assert worker.child.wait(30) == 70


@pytest.mark.parametrize("number", BOTH)
def test_a_second_signal_while_the_engine_stops_ends_with_70(
    served: Served, word_model: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """An idle worker in its cleanup, its engine slow to stop."""
    with stopping_at(served, "cleanup", tmp_path, word_model) as (worker, gate):
        worker.send(number)
        wait_handled(worker.child.pid)
        gate.open()
        assert worker.child.wait(30) == 70


def test_a_signal_that_meets_a_cleanup_without_end_ends_with_70(
    served: Served, word_model: Path, tmp_path: Path
) -> None:
    """The engine never stops: the worker's own limit ends the process, not a signal."""
    with stopping_at(served, "cleanup", tmp_path, word_model) as (worker, _):
        worker.send(signal.SIGTERM)
        assert worker.child.wait(40) == 70


@pytest.mark.parametrize("number", BOTH)
def test_a_signal_after_the_framework_has_returned_changes_nothing(
    served: Served, word_model: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """All is done and said; the code is the planned one."""
    with stopping_at(served, "returned", tmp_path, word_model) as (worker, gate):
        worker.send(number)
        wait_handled(worker.child.pid)
        gate.open()
        assert worker.child.wait(30) == 0
