"""``drain``, ``resume`` and ``status``: the control routes of a running worker, from a shell."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from service.control_client import ANSWER_S, ControlFailed, call_route, complain, default_url, token_of
from service.exit_codes import ExitCode
from service.inspection.printable import printable

# A drain without --timeout takes the worker's own budget, which the command does not know.
_LONGEST_DRAIN_S = 86_400.0


def control_command(command: str, argv: Sequence[str]) -> int:
    """Call one route; returns the exit code.

    0: done, and after `drain` the worker may be deleted. 1: the worker refused, or may not be deleted.
    2: the address or the time is none. 69: nobody answers.
    """
    words = _parser(command).parse_args(argv)
    try:
        url = words.url or default_url(os.environ)
        answer = call_route(url, command, _body(words, os.environ), _patience_s(command, words))
    except ControlFailed as exc:
        complain(str(exc))
        return exc.code
    sys.stdout.write(_shown(answer, as_json=words.json))
    if command == "drain" and not answer.get("safe_to_delete"):
        return ExitCode.UNEXPECTED
    return ExitCode.PLANNED


def _parser(command: str) -> argparse.ArgumentParser:
    about = {
        "drain": "take a worker out of service and wait until nobody is live; the process stays up",
        "resume": "bring a drained worker back",
        "status": "where a worker is, and whether it may be deleted",
    }
    parser = argparse.ArgumentParser(
        prog=f"dynamo-actor-worker {command}", description=about[command], allow_abbrev=False
    )
    parser.add_argument("--url", help="the worker's system server (default: 127.0.0.1, port DYN_SYSTEM_PORT)")
    parser.add_argument("--json", action="store_true", help="the worker's answer as it came")
    if command == "drain":
        parser.add_argument(
            "--timeout", type=_seconds, metavar="S", help="seconds the drain may take (default: the worker's)"
        )
    return parser


def _seconds(given: str) -> float:
    """What the worker takes as a drain's time. Refused here, argparse names the option and ends with 2."""
    with suppress(ValueError):
        if 0 <= (seconds := float(given)) <= _LONGEST_DRAIN_S:
            return seconds
    raise argparse.ArgumentTypeError(f"{given!r} is not allowed: seconds from 0 to {_LONGEST_DRAIN_S:.0f}")


def _body(words: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, Any]:
    timeout_s = vars(words).get("timeout")
    return token_of(environ) | ({} if timeout_s is None else {"timeout_s": timeout_s})


def _patience_s(command: str, words: argparse.Namespace) -> float:
    if command != "drain":
        return ANSWER_S
    return ANSWER_S + (_LONGEST_DRAIN_S if words.timeout is None else words.timeout)


def _shown(answer: dict[str, Any], *, as_json: bool) -> str:
    if as_json:
        return json.dumps(answer, indent=2) + "\n"
    verdict = "safe to delete" if answer["safe_to_delete"] else "NOT safe to delete"
    if answer["state"] == "drained" and answer.get("in_discovery"):
        verdict += ": frontends still find it"
    sequences = f"{answer['in_flight']} sequence{'' if answer['in_flight'] == 1 else 's'}"
    lines = [f"{answer['state']}: {answer['live']} live, {sequences} in the engine; {verdict}"]
    if "interrupted" in answer:
        lines.append(_drained(answer))
    return "".join(f"{printable(line, sys.stdout.encoding)}\n" for line in lines)


def _drained(answer: dict[str, Any]) -> str:
    """What became of those who were live when the door closed."""
    interrupted, moved, otherwise = answer["interrupted"], answer["moved"], answer["ended_otherwise"]
    words = (
        f"drained in {answer['seconds']:.1f} s: {answer['completed']} of {answer['live_at_start']} completed"
    )
    if otherwise:
        words += f", {otherwise} ended otherwise"
    if interrupted:
        words += f", {interrupted} interrupted by shutdown, {moved} of them to be continued on another worker"
    return words
