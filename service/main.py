"""The console script. Signals first, then everything that takes time; one exit, with one code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from service.exit_codes import ExitCode
from service.stopping import StopSignals


def entry_point() -> NoReturn:
    """Run and end the process.

    ``os._exit`` on purpose: threads of an engine or of the framework's runtime that do not end must
    not turn a finished shutdown into a SIGKILL half a minute later. Everything is flushed before.
    """
    signals = StopSignals()
    signals.install()
    signals.exit_at_once_with(ExitCode.PLANNED)
    try:
        code = run(sys.argv[1:], signals)
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else ExitCode.UNEXPECTED
    except BrokenPipeError:
        # The reader of our output has gone, as in `--help | head -1`: not worth a traceback.
        code = ExitCode.UNEXPECTED
    except BaseException as exc:
        if signals.owed_code is None:
            _print_crash(exc)
        code = ExitCode.UNEXPECTED
    # A signal's exit may come out as another error: of a class that was being made, of a library around it.
    code = code if signals.owed_code is None else signals.owed_code
    signals.ignore_from_now()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            # The reader of our output has gone; there is nobody left to tell.
            continue
    os._exit(code)


def run(argv: Sequence[str], signals: StopSignals) -> int:
    """One sub-command; returns the exit code."""
    from importlib.metadata import version  # noqa: PLC0415 - after the signals

    from service.origin import DISTRIBUTION, ForeignPackage, check_origins  # noqa: PLC0415

    try:
        check_origins()
    except ForeignPackage as exc:
        return _refuse(str(exc), ExitCode.CONFIGURATION)
    from service.options import ConfigError, early_answer, split_command  # noqa: PLC0415 - after the origin check

    try:
        command, rest = split_command(argv)
        answer = early_answer(rest, version(DISTRIBUTION)) if command == "serve" else None
        if answer is not None:
            sys.stdout.write(answer)
            return ExitCode.PLANNED
        return _dispatch(command, rest, signals)
    except ConfigError as exc:
        return _refuse(str(exc), ExitCode.CONFIGURATION)
    except ImportError as exc:
        return _refuse(
            f"{exc.name or exc} cannot be imported ({exc}): run `make setup`", ExitCode.UNAVAILABLE
        )


def _dispatch(command: str, rest: list[str], signals: StopSignals) -> int:
    if command not in ("serve", "demo"):
        # A half-done answer is no answer: what comes after `&&` must not run.
        signals.exit_at_once_with(ExitCode.UNEXPECTED)
    # Each command imports what it needs and nothing else: `model` must not wait for the framework.
    match command:
        case "model":
            from service.models.command import model_command  # noqa: PLC0415

            return model_command(rest)
        case "demo":
            from service.demo.command import demo_command  # noqa: PLC0415

            return demo_command(rest, signals)
        case "trace":
            from service.inspection.command import trace_command  # noqa: PLC0415

            return trace_command(rest)
        case "log-level":
            from service.log_level_command import log_level_command  # noqa: PLC0415

            return log_level_command(rest)
        case "drain" | "resume" | "sleep" | "wake" | "status":
            from service.control_command import control_command  # noqa: PLC0415

            return control_command(command, rest)
        case _:
            return _serve(rest, signals)


def _serve(rest: list[str], signals: StopSignals) -> int:
    from service.notify import open_notifier  # noqa: PLC0415 - as above
    from service.notify.events import Ended  # noqa: PLC0415
    from service.telemetry.filter_file import check_filter_files  # noqa: PLC0415

    # Before the imports that take seconds: a service manager shows what is going on from the beginning.
    with open_notifier(os.environ, signals) as notifier:
        check_filter_files(os.environ)
        from service.serving import serve_command  # noqa: PLC0415

        code = ExitCode(serve_command(rest, signals, notifier))
        notifier.tell(Ended(code))
        return code


def _refuse(text: str, code: ExitCode) -> int:
    for line in text.splitlines():
        sys.stderr.write(f"dynamo-actor-worker: {line}\n")
    return code


def _print_crash(exc: BaseException) -> None:
    import traceback  # noqa: PLC0415 - only ever needed once

    traceback.print_exception(exc)
