"""A signal at every moment of a start and of an end, to real processes that wait at that moment."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.e2e.stacks import Stack
from tests.e2e.waiting import wait_log
from tests.faults.moments import (
    BOTH,
    PROGRAM,
    Gate,
    listed,
    moment_environ,
    starting,
    wait_handled,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


def synthetic(model: Path) -> list[str]:
    """Options of a worker without a model."""
    return ["--engine", "synthetic", "--model", str(model), "--synthetic-step-ms", "10"]


def moment_stack(folder: Path, model: Path, moment: str, gate: Gate) -> Stack:
    """One worker, no frontend."""
    environ = moment_environ(moment, gate)
    return Stack(folder / "stack", synthetic(model), environ=environ, has_frontend=False, program=PROGRAM)


@pytest.mark.parametrize("number", BOTH)
def test_a_signal_while_the_options_are_read_ends_the_start_with_0(
    word_model: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """The configuration file does not come: the console script waits for it, and for nobody else."""
    gate = Gate.in_folder(tmp_path, "options.yaml")
    options = [*synthetic(word_model), "--config", str(gate.path)]
    with starting(Stack(tmp_path / "stack", options, has_frontend=False)) as worker:
        held = gate.wait_reader()
        worker.send(number)
        assert worker.child.wait(20) == 0
        os.close(held)
    assert "Traceback" not in worker.log()


@pytest.mark.parametrize("number", BOTH)
@pytest.mark.parametrize("moment", ["model", "load"])
def test_a_signal_before_the_engine_is_there_ends_the_start_with_0(
    word_model: Path, tmp_path: Path, moment: str, number: signal.Signals
) -> None:
    """Fetching the model's files, loading the engine: nobody waits for their end."""
    gate = Gate.in_folder(tmp_path)
    with starting(moment_stack(tmp_path, word_model, moment, gate)) as worker:
        wait_log(worker, f"at {moment}")
        worker.send(number)
        assert worker.child.wait(20) == 0
    assert listed(tmp_path / "stack") == []


@pytest.mark.parametrize("number", BOTH)
@pytest.mark.parametrize("moment", ["registration", "serving"])
def test_a_signal_between_start_and_service_ends_with_0(
    word_model: Path, tmp_path: Path, moment: str, number: signal.Signals
) -> None:
    """The engine is there, the worker not yet in discovery: it leaves nothing in the store."""
    gate = Gate.in_folder(tmp_path)
    with starting(moment_stack(tmp_path, word_model, moment, gate)) as worker:
        wait_log(worker, f"at {moment}")
        worker.send(number)
        wait_handled(worker.child.pid)
        gate.open()
        assert worker.child.wait(30) == 0
    assert listed(tmp_path / "stack") == []


@pytest.mark.parametrize("moment", ["load", "registration", "serving"])
def test_a_second_signal_during_the_start_ends_with_70(word_model: Path, tmp_path: Path, moment: str) -> None:
    """Whoever asks twice is told that it was forced."""
    gate = Gate.in_folder(tmp_path)
    with starting(moment_stack(tmp_path, word_model, moment, gate)) as worker:
        wait_log(worker, f"at {moment}")
        # Stopped, it gets both at once.
        worker.send(signal.SIGSTOP)
        worker.send(signal.SIGTERM)
        worker.send(signal.SIGINT)
        worker.send(signal.SIGCONT)
        wait_handled(worker.child.pid)
        if moment != "load":
            gate.open()
        assert worker.child.wait(30) == 70
    assert listed(tmp_path / "stack") == []


@pytest.mark.parametrize("number", BOTH)
def test_a_second_signal_while_the_engine_stops_ends_with_70(
    word_model: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """An idle worker in its cleanup, its engine slow to stop."""
    gate = Gate.in_folder(tmp_path)
    with starting(moment_stack(tmp_path, word_model, "cleanup", gate)) as worker:
        wait_log(worker, "engine.ready")
        worker.send(signal.SIGTERM)
        wait_log(worker, "at cleanup")
        worker.send(number)
        wait_handled(worker.child.pid)
        gate.open()
        assert worker.child.wait(30) == 70
    assert listed(tmp_path / "stack") == []


def test_a_signal_that_meets_a_cleanup_without_end_ends_with_70(word_model: Path, tmp_path: Path) -> None:
    """The engine never stops: the worker's own limit ends the process, not a signal."""
    gate = Gate.in_folder(tmp_path)
    with starting(moment_stack(tmp_path, word_model, "cleanup", gate)) as worker:
        wait_log(worker, "engine.ready")
        worker.send(signal.SIGTERM)
        wait_log(worker, "at cleanup")
        worker.send(signal.SIGTERM)
        assert worker.child.wait(40) == 70


@pytest.mark.parametrize("number", BOTH)
def test_a_signal_after_the_framework_has_returned_changes_nothing(
    word_model: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """All is done and said; the code is the planned one."""
    gate = Gate.in_folder(tmp_path)
    with starting(moment_stack(tmp_path, word_model, "returned", gate)) as worker:
        wait_log(worker, "engine.ready")
        worker.send(signal.SIGTERM)
        wait_log(worker, "at returned")
        worker.send(number)
        wait_handled(worker.child.pid)
        gate.open()
        assert worker.child.wait(30) == 0
    assert listed(tmp_path / "stack") == []
