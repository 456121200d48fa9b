"""One call of one control route of a running worker, from a shell."""

from __future__ import annotations

import argparse
import http.client
import json
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from msgspec import ValidationError, convert

from protocols.errors import shorten
from service.exit_codes import ExitCode
from service.inspection.printable import printable
from service.posting import OnPiece, ignore_piece, post

Shape = TypeVar("Shape")

# Longest time to wait for an answer beyond what the call itself may take, in seconds.
ANSWER_S = 10.0
_LAST_PORT = 65_535
# In characters: it names the field, the value and what is allowed.
_LONGEST_REFUSAL = 500


class ControlFailed(Exception):
    """No answer, or none of a worker's. The text names the address; ``code`` is the command's exit code."""

    def __init__(self, text: str, code: ExitCode) -> None:
        self.code = code
        super().__init__(text)


def command_parser(command: str, about: str) -> argparse.ArgumentParser:
    """With what every command about one worker takes: which one, and how its answer is shown."""
    parser = argparse.ArgumentParser(
        prog=f"dynamo-actor-worker {command}", description=about, allow_abbrev=False
    )
    parser.add_argument("--url", help="the worker's system server (default: 127.0.0.1, port DYN_SYSTEM_PORT)")
    parser.add_argument("--json", action="store_true", help="the worker's answer as it came")
    return parser


def seconds_of(longest_s: float, *, may_be_zero: bool) -> Callable[[str], float]:
    """A type for argparse, which names the option and ends with 2: what the worker takes as a time."""
    range_of = (
        f"seconds from 0 to {longest_s:.0f}" if may_be_zero else f"seconds above 0, at most {longest_s:.0f}"
    )

    def seconds(given: str) -> float:
        with suppress(ValueError):
            if 0 <= (found := float(given)) <= longest_s and (found or may_be_zero):
                return found
        raise argparse.ArgumentTypeError(f"{given!r} is not allowed: {range_of}")

    return seconds


def default_url(environ: Mapping[str, str]) -> str:
    """The worker of this machine. Raises ControlFailed where nobody said which port it has."""
    port = environ.get("DYN_SYSTEM_PORT")
    if not port:
        raise ControlFailed("give --url http://HOST:PORT, or set DYN_SYSTEM_PORT", ExitCode.CONFIGURATION)
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) <= _LAST_PORT:
        raise ControlFailed(
            f"DYN_SYSTEM_PORT: {shorten(port)} is not allowed: a port from 1 to {_LAST_PORT}; "
            "--url http://HOST:PORT names the worker without it",
            ExitCode.CONFIGURATION,
        )
    return f"http://127.0.0.1:{port}"


def token_of(environ: Mapping[str, str]) -> dict[str, Any]:
    """What the body of every call has besides what it asks for."""
    token = environ.get("DYN_ACTOR_CONTROL_TOKEN")
    return {} if token is None else {"token": token}


def call_route(
    url: str,
    command: str,
    body: Mapping[str, Any],
    patience_s: float = ANSWER_S,
    on_piece: OnPiece = ignore_piece,
) -> dict[str, Any]:
    """The answer of a worker of ours; it has a ``state`` or ``stories``. Blocks. Raises ControlFailed."""
    try:
        address = _address(url)
    except ValueError as exc:
        raise ControlFailed(_no_address(url, exc), ExitCode.CONFIGURATION) from exc
    try:
        status, text = post(address, f"/engine/control/{command}", body, patience_s, on_piece)
    except OSError as exc:
        raise ControlFailed(f"no worker answers at {url}: {exc}", ExitCode.UNAVAILABLE) from exc
    except (http.client.InvalidURL, UnicodeError) as exc:
        raise ControlFailed(_no_address(url, exc), ExitCode.CONFIGURATION) from exc
    except http.client.HTTPException as exc:
        text = f"what answers at {url} does not speak HTTP: {shorten(exc)}"
        raise ControlFailed(text, ExitCode.UNEXPECTED) from exc
    if status == http.HTTPStatus.NOT_FOUND:
        raise _absent(url, command)
    if status != http.HTTPStatus.OK:
        refusal = f"the worker at {url} refused (HTTP {status}): {_reason(text)[:_LONGEST_REFUSAL]}"
        raise ControlFailed(refusal, ExitCode.UNEXPECTED)
    return _understood(url, text)


def shaped(url: str, answer: Mapping[str, Any], shape: type[Shape]) -> Shape:
    """What a command reads of an answer, with the types that it expects. Raises ControlFailed."""
    try:
        return convert(answer, shape)
    except ValidationError as exc:
        text = f"the worker at {url} answers what is not understood here: {exc}"
        raise ControlFailed(text, ExitCode.UNEXPECTED) from exc


def complain(text: str) -> None:
    """One line on stderr; what others wrote in it cannot reach the terminal as it came."""
    sys.stderr.write(f"dynamo-actor-worker: {printable(text, sys.stderr.encoding)}\n")


def _no_address(url: str, why: Exception) -> str:
    return f"{url}: http://HOST:PORT is expected ({why})"


def _address(url: str) -> tuple[str, int]:
    """Host and port. Raises ValueError where there is no such thing."""
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError("not an http address")
    return parts.hostname, parts.port or http.client.HTTP_PORT


def _absent(url: str, command: str) -> ControlFailed:
    """Why there is no such route: a worker of ours has ``status``, whatever else is off. Asks for it."""
    if command != "status":
        with suppress(ControlFailed):
            call_route(url, "status", {})
            return ControlFailed(
                f"{command} is off at {url}: the worker there listens beyond loopback, and "
                "DYN_ACTOR_CONTROL_TOKEN is not set on it; set it there at its start, and here",
                ExitCode.UNEXPECTED,
            )
    return ControlFailed(
        f"what answers at {url} is no worker of ours (HTTP 404 for {command}); --url takes a worker's system "
        "server, whose port is DYN_SYSTEM_PORT, not a frontend",
        ExitCode.UNEXPECTED,
    )


def _reason(text: str) -> str:
    """A refusal in the words that are meant for people, where there are some."""
    match _parsed(text):
        case {"message": str(message)} if message:
            return message.replace(" is not accepted: ", " is not accepted, allowed: ", 1)
        case _:
            return text


def _parsed(text: str) -> Any:
    """None for what is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _understood(url: str, text: str) -> dict[str, Any]:
    """While it shuts down, ai-dynamo 1.6 answers in the worker's place, with HTTP 200."""
    answer = _parsed(text)
    match answer:
        case {"state": _} | {"stories": _}:
            return cast("dict[str, Any]", answer)
        case {"status": "error", "message": str(message)}:
            refusal = f"the framework at {url} refused: {message[:_LONGEST_REFUSAL]}"
            raise ControlFailed(refusal, ExitCode.UNEXPECTED)
        case _:
            text = f"what answers at {url} is no worker of ours: {shorten(text)}"
            raise ControlFailed(text, ExitCode.UNEXPECTED)
