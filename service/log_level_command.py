"""``log-level``: how much a running worker writes, from a shell."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from service.control_answers import Level, Levels
from service.control_client import (
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
from service.log_level import CONFIGURED, LONGEST_S, folded
from service.telemetry.levels import LEVELS


def log_level_command(argv: Sequence[str]) -> int:
    """Call the route and print what holds then; returns the exit code.

    0: done. 1: the worker refused, or answered what is not understood. 2: the address, the level or the time
    is none. 69: nobody answers.
    """
    words = _parser().parse_args(argv)
    asked = {"level": words.level, "target": words.target, "for_s": words.for_s}
    body = token_of(os.environ) | {key: value for key, value in asked.items() if value is not None}
    try:
        url = words.url or default_url(os.environ)
        answer = call_route(url, "log_level", body)
        told = shaped(url, answer, Levels)
    except ControlFailed as exc:
        complain(str(exc))
        return exc.code
    lines = json.dumps(answer, indent=2).splitlines() if words.json else map(_line, told.targets)
    sys.stdout.writelines(f"{printable(line, sys.stdout.encoding)}\n" for line in lines)
    return ExitCode.PLANNED


def _parser() -> argparse.ArgumentParser:
    about = "how much a running worker writes to its log; without a level, what holds now"
    parser = command_parser("log-level", about)
    parser.add_argument(
        "level",
        nargs="?",
        metavar="LEVEL",
        type=folded,
        choices=(*LEVELS, CONFIGURED),
        help=f"one of {', '.join(LEVELS)}, or {CONFIGURED}: as DYN_LOG says",
    )
    parser.add_argument(
        "--for",
        dest="for_s",
        type=seconds_of(LONGEST_S, may_be_zero=False),
        metavar="S",
        help="seconds until it is taken back",
    )
    parser.add_argument(
        "--target", help="whose lines: actor, actors, service (default: all of them) or one below"
    )
    return parser


def _line(entry: Level) -> str:
    level, configured = (
        word or "as DYN_LOGGING_CONFIG_PATH says" for word in (entry.level, entry.configured)
    )
    words = f"{entry.target}: {level}"
    if level != configured:
        words += f" (configured: {configured})"
    if entry.left_s is not None:
        words += f", taken back in {entry.left_s:.0f} s"
    return words
