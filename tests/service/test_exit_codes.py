"""The table of exit codes: how the process ends for every way of ending."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from protocols.errors import EngineStartError, StartFault, StartStopped
from service.exit_codes import ExitCode
from service.framework import UnsupportedFramework
from service.models import ModelInvalid, ModelUnavailable
from service.options import EngineChoiceError, NoGpuError
from service.stopping import StopSignals
from service.system_server import SystemPortTaken
from service.verdict import code_before_the_framework, exit_code


@dataclass
class Death:
    is_dead: bool = False


@dataclass
class Worker:
    """As much of a worker as the verdict looks at."""

    start_failure: BaseException | None = None
    was_started: bool = True
    death: Death = field(default_factory=Death)


FRAMEWORK = RuntimeError("BackendUnknown: whatever")
BAD_MODEL = EngineStartError("model: 'nowhere' does not exist.", "Give a folder.")
NO_FILES = EngineStartError("weights are not there", "Look.", StartFault.UNAVAILABLE)
TAKEN = SystemPortTaken("system port: 127.0.0.1:9090 cannot be bound")
# As the framework's runtime says it.
OTHER_MODEL = RuntimeError(
    "BackendUnknown: model attach: Cannot register model 'new' on endpoint 'dynamo/backend/generate': "
    "a different model 'old' is already registered there"
)
DIED = EngineStartError("its worker died", "Look.", StartFault.ENGINE)
STOPPED = StartStopped("the start was interrupted")

# signals, start_failure, was_started, is_dead, failure -> code
Row = tuple[int, BaseException | None, bool, bool, Exception | None, ExitCode]
TABLE: list[Row] = [
    (0, None, True, False, None, ExitCode.UNAVAILABLE),
    (1, None, True, False, None, ExitCode.PLANNED),
    (2, None, True, False, None, ExitCode.FORCED),
    (3, None, True, False, None, ExitCode.FORCED),
    (1, None, True, True, None, ExitCode.FORCED),
    (1, None, True, True, FRAMEWORK, ExitCode.FORCED),
    (2, None, True, False, FRAMEWORK, ExitCode.FORCED),
    (1, STOPPED, True, False, FRAMEWORK, ExitCode.PLANNED),
    (2, STOPPED, True, False, FRAMEWORK, ExitCode.FORCED),
    (0, BAD_MODEL, True, False, FRAMEWORK, ExitCode.CONFIGURATION),
    (1, BAD_MODEL, True, False, FRAMEWORK, ExitCode.CONFIGURATION),
    (0, NO_FILES, True, False, FRAMEWORK, ExitCode.UNAVAILABLE),
    (0, DIED, True, False, FRAMEWORK, ExitCode.UNEXPECTED),
    (0, TAKEN, True, False, FRAMEWORK, ExitCode.UNAVAILABLE),
    (0, None, True, False, OTHER_MODEL, ExitCode.UNAVAILABLE),
    (0, RuntimeError("out of memory"), True, False, OTHER_MODEL, ExitCode.UNEXPECTED),
    (0, RuntimeError("out of memory"), True, False, FRAMEWORK, ExitCode.UNEXPECTED),
    (0, asyncio.CancelledError(), True, False, FRAMEWORK, ExitCode.UNEXPECTED),
    (0, None, True, False, FRAMEWORK, ExitCode.UNEXPECTED),
    (0, None, False, False, FRAMEWORK, ExitCode.UNAVAILABLE),
]


def test_a_signals_own_end_as_another_error_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    """It met a class that was being made, inside of the framework's start: nobody has to look."""
    stop = StopSignals()
    stop.note()
    stop.owed_code = ExitCode.PLANNED
    worker: Any = Worker(was_started=False)
    assert exit_code(worker, stop, FRAMEWORK) is ExitCode.PLANNED
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_the_exit_code_says_how_it_ended(row: Row, capsys: pytest.CaptureFixture[str]) -> None:
    """One row of the table; what is not planned or forced says why on stderr, one line at least."""
    signals, cause, was_started, is_dead, failure, code = row
    stop = StopSignals()
    for _ in range(signals):
        stop.note()
    worker: Any = Worker(cause, was_started, Death(is_dead))
    assert exit_code(worker, stop, failure) is code
    said = capsys.readouterr().err
    assert bool(said) is (code not in {ExitCode.PLANNED, ExitCode.FORCED})
    assert all(line.startswith("dynamo-actor-worker: ") for line in said.splitlines())


@pytest.mark.parametrize(
    ("exc", "code"),
    [
        (BAD_MODEL, ExitCode.CONFIGURATION),
        (NO_FILES, ExitCode.UNAVAILABLE),
        (DIED, ExitCode.UNEXPECTED),
        (EngineChoiceError("tensorrt-llm is not installed"), ExitCode.CONFIGURATION),
        (NoGpuError("no GPU is visible"), ExitCode.UNAVAILABLE),
        (ModelInvalid("m", "config.json says no context length", "Give it."), ExitCode.CONFIGURATION),
        (ModelUnavailable("m", "the hub is away", "Try again."), ExitCode.UNAVAILABLE),
        (TAKEN, ExitCode.UNAVAILABLE),
        (UnsupportedFramework("ai-dynamo 0.1"), ExitCode.UNAVAILABLE),
    ],
)
def test_a_start_that_was_given_up_early_says_whether_another_may_do_better(
    exc: Exception, code: ExitCode
) -> None:
    """Service managers do not try again after a 2: a machine without its driver is worth another try."""
    assert code_before_the_framework(exc) is code


def test_a_start_that_failed_is_explained_in_the_engines_words(capsys: pytest.CaptureFixture[str]) -> None:
    """Not in the framework's wrapping of them."""
    worker: Any = Worker(BAD_MODEL)
    exit_code(worker, StopSignals(), FRAMEWORK)
    assert "nowhere" in (said := capsys.readouterr().err)
    assert "Give a folder." in said
    assert "BackendUnknown" not in said


def test_a_framework_that_cannot_start_names_discovery(capsys: pytest.CaptureFixture[str]) -> None:
    """The likely reason is a store that is not there."""
    worker: Any = Worker(was_started=False)
    exit_code(worker, StopSignals(), FRAMEWORK)
    assert "--discovery-backend" in capsys.readouterr().err


def test_an_endpoint_that_serves_another_model_is_named_with_the_way_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Frontends know a model by its endpoint: a second one there would be asked for the first."""
    exit_code(cast("Any", Worker()), StopSignals(), OTHER_MODEL)
    said = capsys.readouterr().err
    for words in (
        "served-model-name 'new'",
        "dynamo/backend/generate serves 'old'",
        "DYN_NAMESPACE",
        "--endpoint",
    ):
        assert words in said
    assert "BackendUnknown" not in said


def test_a_framework_that_ends_by_itself_is_no_planned_end(capsys: pytest.CaptureFixture[str]) -> None:
    """Its lease in etcd ran out: a supervisor that restarts failures only has to see one."""
    worker: Any = Worker()
    assert exit_code(worker, StopSignals(), None) is ExitCode.UNAVAILABLE
    assert "ETCD_LEASE_TTL" in capsys.readouterr().err


def test_the_numbers_are_the_documented_ones() -> None:
    """Operators' scripts and manifests compare with them."""
    assert {code.name: code.value for code in ExitCode} == {
        "PLANNED": 0, "UNEXPECTED": 1, "CONFIGURATION": 2, "UNAVAILABLE": 69, "FORCED": 70,
    }  # fmt: skip
