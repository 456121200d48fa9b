"""Control routes of a running worker, from a shell: ``drain``, ``resume``, ``sleep``, ``wake``, ``status``.

Of those that wait for the engine the command is as patient as the worker itself.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from service.control_answers import Drained, Standing
from service.control_client import (
    ANSWER_S,
    ControlFailed,
    call_route,
    command_parser,
    complain,
    default_url,
    seconds_of,
    shaped,
    token_of,
)
from service.exit_codes import ExitCode
from service.inspection.printable import printable
from service.maintenance_call import CALL_S

# A drain without --timeout takes the worker's own budget, which the command does not know.
_LONGEST_DRAIN_S = 86_400.0
_DRAINING = ("drain", "sleep")
# Where the command's word is not the route's: see `service.controls`.
_ROUTES = {"sleep": "fall_asleep"}


def control_command(command: str, argv: Sequence[str]) -> int:
    """Call one route; returns the exit code.

    0: done, and after `drain` the worker may be deleted. 1: the worker refused, or answered what is not
    understood, or may not be deleted. 2: the address or the time is none. 69: nobody answers.
    """
    words = _parser(command).parse_args(argv)
    try:
        url = words.url or default_url(os.environ)
        answer = call_route(
            url, _ROUTES.get(command, command), _body(words, os.environ), _patience_s(command, words)
        )
        standing = shaped(url, answer, Standing)
        drained = shaped(url, answer, Drained) if "interrupted" in answer else None
    except ControlFailed as exc:
        complain(str(exc))
        return exc.code
    sys.stdout.write(json.dumps(answer, indent=2) + "\n" if words.json else _shown(standing, drained))
    if command == "drain" and not standing.safe_to_delete:
        return ExitCode.UNEXPECTED
    return ExitCode.PLANNED


def _parser(command: str) -> argparse.ArgumentParser:
    about = {
        "drain": "take a worker out of service and wait until nobody is live; the process stays up",
        "resume": "bring a drained worker back",
        "sleep": "drain a worker, then give memory of its engine back; the process stays up",
        "wake": "take the memory back, and serve again",
        "status": "where a worker is, and whether it may be deleted",
    }
    parser = command_parser(command, about[command])
    if command == "sleep":
        parser.add_argument(
            "memories", nargs="*", metavar="MEMORY", help="kinds of memory, by the engine's names (kv_cache)"
        )
    if command in _DRAINING:
        parser.add_argument(
            "--timeout",
            type=seconds_of(_LONGEST_DRAIN_S, may_be_zero=True),
            metavar="S",
            help="seconds the drain may take (default: the worker's)",
        )
    return parser


def _body(words: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, Any]:
    timeout_s, memories = vars(words).get("timeout"), vars(words).get("memories")
    body = {} if timeout_s is None else {"timeout_s": timeout_s}
    return token_of(environ) | body | ({"memories": memories} if memories else {})


def _patience_s(command: str, words: argparse.Namespace) -> float:
    engine_s = CALL_S if command in ("sleep", "wake") else 0.0
    if command not in _DRAINING:
        return ANSWER_S + engine_s
    return ANSWER_S + engine_s + (_LONGEST_DRAIN_S if words.timeout is None else words.timeout)


def _shown(standing: Standing, drained: Drained | None) -> str:
    verdict = "safe to delete" if standing.safe_to_delete else "NOT safe to delete"
    if standing.state == "drained" and standing.in_discovery:
        verdict += ": frontends still find it"
    sequences = f"{standing.in_flight} sequence{'' if standing.in_flight == 1 else 's'}"
    lines = [f"{_state(standing)}: {standing.live} live, {sequences} in the engine; {verdict}"]
    if drained is not None:
        lines.append(_fates(drained))
    return "".join(f"{printable(line, sys.stdout.encoding)}\n" for line in lines)


def _state(standing: Standing) -> str:
    """A worker that has all of its memory says nothing of it."""
    if standing.memory == "awake":
        return standing.state
    gone = f" ({', '.join(standing.asleep)})" if standing.asleep else ""
    return f"{standing.state}, {standing.memory.replace('_', ' ')}{gone}"


def _fates(drained: Drained) -> str:
    """What became of those who were live when the door closed."""
    words = f"drained in {drained.seconds:.1f} s: {drained.completed} of {drained.live_at_start} completed"
    if drained.ended_otherwise:
        words += f", {drained.ended_otherwise} ended otherwise"
    if drained.interrupted:
        words += f", {drained.interrupted} interrupted by shutdown"
        words += f", {drained.moved} of them to be continued on another worker"
    return words
