"""How a worker ended, as its exit code, and the last words that go with it."""

from __future__ import annotations

import sys

from protocols.errors import EngineStartError, StartFault, StartStopped
from service.engine import ActorEngine
from service.exit_codes import ExitCode
from service.models import ModelInvalid
from service.options import EngineChoiceError, NoGpuError
from service.registration import other_model_there
from service.stopping import StopSignals
from service.system_server import SystemPortTaken

# Measured: the framework ends so, in order, when its lease in etcd has run out.
_ENDED_BY_ITSELF = (
    "nobody asked the framework to stop and it did: its discovery was lost for longer than its lease lasts "
    "(etcd: ETCD_LEASE_TTL, 10 s); what was in flight has ended, a supervisor must start this worker again"
)

# Only the first is the same at every start: supervisors are told not to try again after that code.
_CODES = {
    StartFault.CONFIGURATION: ExitCode.CONFIGURATION,
    StartFault.UNAVAILABLE: ExitCode.UNAVAILABLE,
    StartFault.ENGINE: ExitCode.UNEXPECTED,
}


def code_before_the_framework(exc: Exception) -> ExitCode:
    """Of a start that was given up before the framework ran, for this reason."""
    if isinstance(exc, EngineStartError):
        return _CODES[exc.fault]
    if isinstance(exc, NoGpuError):
        return ExitCode.UNAVAILABLE
    is_configuration = isinstance(exc, EngineChoiceError | ModelInvalid)
    return ExitCode.CONFIGURATION if is_configuration else ExitCode.UNAVAILABLE


def exit_code(worker: ActorEngine, signals: StopSignals, failure: Exception | None) -> ExitCode:
    """How this ended. ``failure`` is what the framework's ``run`` raised, None when it returned."""
    cause = worker.start_failure
    if worker.death.is_dead or signals.is_forced:
        return ExitCode.FORCED
    was_stopped = isinstance(cause, StartStopped) or signals.owed_code is not None
    if was_stopped or (failure is None and signals.is_asked):
        return ExitCode.PLANNED
    if failure is None:
        return complain(_ENDED_BY_ITSELF, ExitCode.UNAVAILABLE)
    if cause is not None:
        return complain(cause, _code_of_start(cause))
    if not worker.was_started:
        hint = "is the discovery backend reachable? (--discovery-backend file needs no server)"
        return complain(f"the framework could not start: {failure}; {hint}", ExitCode.UNAVAILABLE)
    other_model = other_model_there(failure)
    if other_model is not None:
        return complain(other_model, ExitCode.UNAVAILABLE)
    return complain(failure, ExitCode.UNEXPECTED)


def _code_of_start(cause: BaseException) -> ExitCode:
    """Of what the worker's own start raised."""
    if isinstance(cause, EngineStartError):
        return _CODES[cause.fault]
    return ExitCode.UNAVAILABLE if isinstance(cause, SystemPortTaken) else ExitCode.UNEXPECTED


def complain(problem: object, code: ExitCode) -> ExitCode:
    """The last words of a process that gives up, a line each, on stderr."""
    text = str(problem) or type(problem).__name__
    for line in text.splitlines():
        sys.stderr.write(f"dynamo-actor-worker: {line}\n")
    return code
