"""The sub-command: ``demo`` shows and ends, ``demo --stay`` serves until Ctrl-C."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from service.demo.client import Client, StreamFailed
from service.demo.processes import DRAIN_S, Stack
from service.demo.tour import QUESTION, Tour
from service.demo.waiting import StackFailed, wait_until_served
from service.exit_codes import ExitCode
from service.models import ModelInvalid, ModelUnavailable, resolve_model
from service.stopping import StopSignals

_USAGE = """\
usage: dynamo-actor-worker demo [--stay] [WORKER OPTIONS]

Starts Dynamo's frontend and one worker on 127.0.0.1, without etcd and NATS, and shows what they do.
--stay        serve until Ctrl-C instead
other words   are options of the worker, for example --engine synthetic or --model FOLDER
"""


def demo_command(argv: Sequence[str], signals: StopSignals) -> int:
    """Run it; returns the exit code. Nothing is left running, whatever happens."""
    words = list(argv)
    if "--help" in words or "-h" in words:
        sys.stdout.write(_USAGE)
        return ExitCode.PLANNED
    stays = "--stay" in words
    options = [word for word in words if word != "--stay"]
    console = Console(highlight=False)
    try:
        resolve_model(_model_of(options))
    except ModelInvalid as exc:
        return _complain(exc, ExitCode.CONFIGURATION)
    except ModelUnavailable as exc:
        return _complain(exc, ExitCode.UNAVAILABLE)
    signals.leave_it_to_the_framework()
    with tempfile.TemporaryDirectory(prefix="dynamo-actor-worker-") as folder:
        stack = Stack(Path(folder), options)
        try:
            return _show(stack, console, signals, stays=stays)
        except KeyboardInterrupt:
            console.print("stopped")
            return ExitCode.PLANNED
        except (StackFailed, StreamFailed, OSError) as exc:
            return _complain(exc, ExitCode.UNEXPECTED)
        finally:
            stack.stop()


def _show(stack: Stack, console: Console, signals: StopSignals, *, stays: bool) -> int:
    frontend, system = Client(stack.http_port), Client(stack.system_port)
    model = wait_until_served(stack, frontend, console, lambda: signals.is_asked)
    ready_s = time.monotonic() - stack.started_s
    console.print(f"[bold]{model}[/] is served at http://127.0.0.1:{stack.http_port} after {ready_s:.1f} s")
    if stays:
        return _stay(stack, console, signals, model)
    tour = Tour(stack, frontend, system, model, console)
    for step in (tour.answer, tour.way, tour.cancel, tour.figures, tour.drain):
        if signals.is_asked:
            raise KeyboardInterrupt
        step()
    console.print("\n[bold]That was it.[/] `make serve` stays up; README.md goes on from here.")
    return ExitCode.PLANNED


def _stay(stack: Stack, console: Console, signals: StopSignals, model: str) -> int:
    """Until a signal; then the worker finishes what it has, and the frontend goes last."""
    body = (
        f'{{"model": "{model}", "messages": [{{"role": "user", "content": "{QUESTION}"}}], "stream": true}}'
    )
    console.print("\nTry it from another terminal:\n", markup=False)
    console.print(
        f"  curl -N http://127.0.0.1:{stack.http_port}/v1/chat/completions \\\n"
        f"    -H 'Content-Type: application/json' \\\n    -d '{body}'\n",
        markup=False, soft_wrap=True,
    )  # fmt: skip
    console.print(f"  metrics   http://127.0.0.1:{stack.system_port}/metrics", markup=False)
    console.print(f"  logs      {stack.worker.log}\n\nCtrl-C stops it; answers under way are finished first.")
    while not signals.is_asked:
        dead = stack.dead()
        if dead is not None:
            raise StackFailed(f"the {dead.name} ended with code {dead.exit_code}")
        time.sleep(0.2)
    console.print("stopping: the worker finishes what it has …")
    stack.worker.ask_to_stop()
    code = stack.worker.wait(DRAIN_S)
    console.print(f"the worker ended with code {code}")
    return ExitCode.PLANNED if code == 0 else ExitCode.UNEXPECTED


def _model_of(options: Sequence[str]) -> str:
    """The model named among the worker's options, so that its files are there before the stack starts."""
    for place, word in enumerate(options):
        if word in {"--model", "--model-path"} and place + 1 < len(options):
            return options[place + 1]
        if word.startswith(("--model=", "--model-path=")):
            return word.partition("=")[2]
    return "smollm2-135m"


def _complain(problem: object, code: ExitCode) -> int:
    for line in str(problem).splitlines():
        sys.stderr.write(f"dynamo-actor-worker: {line}\n")
    return code
