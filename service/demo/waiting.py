"""Waiting for the demo's stack, with something to look at meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from rich.console import Console

from service.demo.client import Client
from service.demo.processes import Stack

_POLL_S = 0.1
# Importing torch and loading the model took 6 to 12 s on two cores; ten times that is a fault.
READY_TIMEOUT_S = 180.0


class StackFailed(Exception):
    """A process of the demo ended, or did not get ready. The text ends with its last log lines."""


def wait_until_served(stack: Stack, client: Client, console: Console, is_stopped: Callable[[], bool]) -> str:
    """Until the frontend has a model to ask; returns its name.

    Raises StackFailed, or KeyboardInterrupt when the operator had enough.
    """
    with console.status("starting the frontend and the worker, loading the model …") as status:
        while True:
            models = client.open_models()
            if models:
                return models[0]
            if is_stopped():
                raise KeyboardInterrupt
            elapsed_s = time.monotonic() - stack.started_s
            status.update(f"starting the frontend and the worker, loading the model … {elapsed_s:.0f} s")
            dead = stack.dead()
            if dead is not None:
                raise StackFailed(
                    f"the {dead.name} ended with code {dead.exit_code}:\n" + _tail(dead.last_lines())
                )
            if elapsed_s > READY_TIMEOUT_S:
                raise StackFailed(
                    f"no model after {READY_TIMEOUT_S:.0f} s:\n" + _tail(stack.worker.last_lines())
                )
            time.sleep(_POLL_S)


def wait_for_status(system: Client, accepts: Callable[[dict[str, object]], bool], timeout_s: float) -> float:
    """Ask the worker for its status until it is as wished; returns the seconds that took."""
    started_s = time.monotonic()
    while time.monotonic() - started_s < timeout_s:
        status, body = system.post("/engine/control/status", {})
        if status == 200 and accepts(json.loads(body)):
            return time.monotonic() - started_s
        time.sleep(0.002)
    raise StackFailed(f"the worker's status was not as expected within {timeout_s:g} s")


def _tail(lines: list[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)
