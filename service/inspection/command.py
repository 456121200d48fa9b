"""``trace``: where requests that have ended spent their time, on one worker or on several."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from service.control_client import ControlFailed, complain, default_url, token_of
from service.exit_codes import ExitCode
from service.inspection.asking import Heard, Question, hear
from service.inspection.page import render_page, write_page
from service.inspection.printable import printable
from service.inspection.view import view_of
from service.inspection.waterfall import NARROWEST, render_journey
from service.telemetry.stories import MOST_TOLD, Kept

# What can be asked for, in the words of those who have it.
IDS = "the id of its answer (chatcmpl-…), its x-request-id, or its context's, engine's or trace's id"
# As many as a terminal shows without a pager.
_IN_A_TERMINAL = 4


def trace_command(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> int:
    """Ask, show, and return the exit code.

    0: all workers answered. 69: one of them does not; 1: one of them refused, or nobody keeps a request with
    this id; what the others told is shown all the same. 2: an option, an address or the file is none.
    """
    surroundings = os.environ if environ is None else environ
    words = _parser().parse_args(argv)
    try:
        urls = list(dict.fromkeys(words.url or [default_url(surroundings)]))
    except ControlFailed as exc:
        complain(str(exc))
        return exc.code
    heard = hear(urls, _question(words), token_of(surroundings))
    _complain_of(heard)
    code = max(asked.code for asked in heard.asked)
    if all(asked.trouble is not None for asked in heard.asked):
        return code
    return max(code, _show(heard, words, token_of(surroundings)))


def _complain_of(heard: Heard) -> None:
    """Of those who told nothing, and of what could not be asked."""
    for asked in heard.asked:
        if asked.trouble is not None:
            complain(asked.trouble)
    if heard.unasked:
        complain(
            f"{heard.unasked} of the requests may have lives on other workers: not all of these were asked, "
            "or answered; ask for one by its id"
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dynamo-actor-worker trace",
        description="where requests that have ended spent their time, and why they ended",
        allow_abbrev=False,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("id", nargs="?", metavar="ID", help=f"of a request: {IDS}")
    for kept, about in (
        (Kept.LAST, "the last ones, newest first (default)"),
        (Kept.SLOWEST, "the slowest of the last ten to twenty minutes"),
        (Kept.FAILED, "those that failed, stalled, were interrupted or too late"),
    ):
        which.add_argument(f"--{kept}", dest="which", action="store_const", const=kept, help=about)
    parser.set_defaults(which=Kept.LAST)
    parser.add_argument(
        "--limit",
        type=_limit,
        metavar="N",
        help=f"how many of them (default: {_IN_A_TERMINAL} in a terminal, else {MOST_TOLD})",
    )
    parser.add_argument(
        "--url",
        action="append",
        help="a worker's system server (default: 127.0.0.1, port DYN_SYSTEM_PORT); may be given for each of "
        "several workers: a request that was moved from one to another is shown as one",
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="everything that was told, as JSON")
    shape.add_argument("--html", type=Path, metavar="FILE", help="write one page that needs no network")
    return parser


def _limit(given: str) -> int:
    if given.isdecimal() and 1 <= int(given) <= MOST_TOLD:
        return int(given)
    raise argparse.ArgumentTypeError(f"{given!r} is not allowed: a number from 1 to {MOST_TOLD}")


def _question(words: argparse.Namespace) -> Question:
    is_short = not words.json and words.html is None and words.id is None
    return Question(words.id, words.which, words.limit or (_IN_A_TERMINAL if is_short else MOST_TOLD))


def _show(heard: Heard, words: argparse.Namespace, token: Mapping[str, Any]) -> ExitCode:
    if words.json:
        sys.stdout.write(json.dumps(view_of(heard), indent=2) + "\n")
    elif words.html is not None:
        try:
            write_page(words.html, render_page(view_of(heard)))
        except OSError as exc:
            complain(f"--html: {words.html} cannot be written: {exc.strerror}")
            return ExitCode.CONFIGURATION
        number = len(heard.journeys)
        sys.stdout.write(f"{number} request{'' if number == 1 else 's'} in {words.html}\n")
    elif heard.journeys:
        _draw(heard)
    if not heard.journeys and not words.json:
        sys.stdout.write(f"{printable(_nothing(heard, token), sys.stdout.encoding)}\n")
    return ExitCode.PLANNED if heard.journeys or words.id is None else ExitCode.UNEXPECTED


def _nothing(heard: Heard, token: Mapping[str, Any]) -> str:
    """Why there is nothing to show. Asks those who answered whether they keep any request at all."""
    wanted = heard.question.wanted
    if wanted in tuple(Kept):
        return f"no request has the id {wanted}: --{wanted} shows the {wanted} ones"
    talkers = [asked.worker.url for asked in heard.asked if asked.trouble is None]
    if not hear(talkers, Question(None, Kept.LAST, 1), token).journeys:
        return "no request has ended yet"
    if wanted is None:
        return "no such request is kept: none failed, stalled, was interrupted or too late"
    return f"no request with the id {wanted} is kept; an id is {IDS}"


def _draw(heard: Heard) -> None:
    width = max(shutil.get_terminal_size().columns, NARROWEST)
    console = Console(width=width, highlight=False, markup=False, emoji=False, soft_wrap=True)
    for place, journey in enumerate(heard.journeys):
        if place:
            console.print()
        for line in render_journey(journey, width, sys.stdout.encoding):
            console.print(line)
