"""``dynamo-actor-worker`` without a sub-command: one worker, from its options to its exit code."""

from __future__ import annotations

import gc
import os
import sys
import time
import uuid
from collections.abc import MutableMapping, Sequence

from dynamo.common.backend.run import run
from dynamo.common.backend.worker import WorkerConfig

from protocols.errors import EngineStartError
from service.assembly import ThisProcess, build_worker
from service.engine import ActorEngine
from service.exit_codes import ExitCode
from service.first_words import say_configuration
from service.framework import UnsupportedFramework, check_version, framework_facts, installed_version
from service.guard import ExitGuard
from service.models import ModelInvalid, ModelUnavailable, resolve_model
from service.models.catalogue import BUILT_IN_MODELS
from service.notify import Notifier, why_of
from service.notify.events import Failed, Preparing
from service.options import (
    EngineChoiceError,
    Settings,
    check_settings,
    choose_engine,
    config_json,
    exit_code_of,
    findings_text,
    load_settings,
    print_config,
    read_engine_facts,
    refuse_missing_packages,
)
from service.processors.check import check_processors
from service.processors.imports import load_processors
from service.stopping import StopSignals
from service.system_server import SystemPortTaken
from service.telemetry.logs import configure_logging, get_logger
from service.verdict import code_before_the_framework, complain, exit_code

# What a start is given up for before the framework runs.
_REFUSALS = (
    EngineChoiceError,
    EngineStartError,
    ModelInvalid,
    ModelUnavailable,
    SystemPortTaken,
    UnsupportedFramework,
)


def serve_command(argv: Sequence[str], signals: StopSignals, notifier: Notifier) -> int:
    """Serve until a signal; returns the exit code. Raises ConfigError."""
    configure_logging(os.environ)
    try:
        check_version(installed_version())
        settings = load_settings(argv, os.environ, framework_facts())
        match settings.action:
            case "print_config":
                sys.stdout.write(print_config(settings))
                return ExitCode.PLANNED
            case "check_config":
                facts = read_engine_facts(os.environ)
                findings = check_settings(settings, facts, BUILT_IN_MODELS)
                findings += check_processors(settings, facts)
                sys.stdout.write(findings_text(findings))
                return exit_code_of(findings)
            case "serve":
                return _serve(settings, signals, notifier)
    except _REFUSALS as exc:
        if signals.owed_code is not None:
            # A signal's own end, as another error.
            return signals.owed_code
        notifier.tell(Failed(why_of(exc)))
        return complain(exc, code_before_the_framework(exc))


def assemble(argv: Sequence[str] | None, signals: StopSignals) -> ActorEngine:
    """A worker that somebody else's process runs: ``ActorEngine.from_args``.

    Raises ConfigError, and what a start is given up for before the framework runs.
    """
    words = sys.argv[1:] if argv is None else argv
    return _prepare(load_settings(words, os.environ, framework_facts()), signals, Notifier())


def _prepare(settings: Settings, signals: StopSignals, notifier: Notifier) -> ActorEngine:
    """Choose the engine, get the model's files, and put the worker together."""
    log = get_logger("service.serving")
    for warning in settings.warnings:
        log.warning("config.warning", text=warning)
    choice = choose_engine(
        settings.engine.requested, read_engine_facts(os.environ), settings.engine.tensorrt_options
    )
    log.info("engine.chosen", engine=choice.engine, reason=choice.reason)
    refuse_missing_packages(settings)
    if settings.runtime.system_server is not None:
        settings.runtime.system_server.require_port()
    instance_id = str(uuid.uuid4())
    say_configuration(settings, choice.engine, instance_id)
    if settings.dump_config_to is not None:
        settings.dump_config_to.write_text(config_json(settings), encoding="utf-8")
    apply_environment(settings, os.environ)
    # Before the model, which may have to be fetched.
    factories = load_processors(settings, choice.engine)
    notifier.tell(Preparing("the model's files are looked for"))
    model = resolve_model(settings.model.model)
    process = ThisProcess(signals, notifier, instance_id)
    return build_worker(settings, choice.engine, model, process, factories)


def apply_environment(settings: Settings, environ: MutableMapping[str, str]) -> None:
    """What the framework must see, and what it must not. Before its runtime starts."""
    environ.update(settings.environment)
    for name in settings.environment_to_unset:
        environ.pop(name, None)


def _serve(settings: Settings, signals: StopSignals, notifier: Notifier) -> int:
    worker = _prepare(settings, signals, notifier)
    if settings.runtime.disable_gc:
        gc.disable()
    ExitGuard(signals, settings.drain.guard_at_s, notifier.last_word)

    async def engine_factory(_argv: list[str] | None) -> tuple[ActorEngine, WorkerConfig]:
        return worker, worker.worker_config

    failure: Exception | None = None
    # Its store may be away: it waits for one for two minutes.
    notifier.tell(Preparing("the framework connects to its discovery"))
    try:
        run(ActorEngine, [], engine_factory)
    except Exception as exc:
        failure = exc
    code = exit_code(worker, signals, failure)
    if worker.start_failure is not None and code is not ExitCode.PLANNED:
        notifier.tell(Failed(why_of(worker.start_failure)))
    # What comes now meets nothing that it could end: it must change neither the code nor kill us.
    signals.ignore_from_now()
    seconds = time.monotonic() - signals.began_s
    get_logger("service.serving").info("worker.ended", code=code.value, seconds=round(seconds, 3))
    return code
