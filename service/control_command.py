"""``drain``, ``resume``, ``status`` and ``trace``: the control routes of a running worker, from a shell."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast
from urllib.parse import urlsplit

from protocols.errors import shorten
from service.exit_codes import ExitCode
from service.telemetry.waterfall import render_waterfall

# Longest time to wait for an answer beyond what the drain itself may take, in seconds.
_ANSWER_S = 10.0
# A drain without --timeout takes the worker's own budget, which the command does not know.
_LONGEST_DRAIN_S = 86_400.0


class ControlFailed(Exception):
    """The worker cannot be reached, or it refused."""


def control_command(command: str, argv: Sequence[str]) -> int:
    """Call one route; returns the exit code.

    0: done, and after `drain` the worker may be deleted. 1: the worker refused, or may not be deleted.
    2: the address or the time is none. 69: nobody answers.
    """
    words = _parser(command).parse_args(argv)
    url = words.url or _default_url(os.environ)
    if url is None:
        sys.stderr.write("dynamo-actor-worker: give --url http://HOST:PORT, or set DYN_SYSTEM_PORT\n")
        return ExitCode.CONFIGURATION
    body = _body(command, words, os.environ)
    try:
        address = _address(url)
    except ValueError as exc:
        sys.stderr.write(f"dynamo-actor-worker: {url}: http://HOST:PORT is expected ({exc})\n")
        return ExitCode.CONFIGURATION
    try:
        answer = _post(address, command, body, _patience_s(command, words))
    except OSError as exc:
        sys.stderr.write(f"dynamo-actor-worker: no worker answers at {url}: {exc}\n")
        return ExitCode.UNAVAILABLE
    except ControlFailed as exc:
        sys.stderr.write(f"dynamo-actor-worker: {exc}\n")
        return ExitCode.UNEXPECTED
    sys.stdout.write(_shown(command, answer, as_json=words.json))
    if command == "drain" and not answer.get("safe_to_delete"):
        return ExitCode.UNEXPECTED
    return ExitCode.PLANNED


def _parser(command: str) -> argparse.ArgumentParser:
    about = {
        "drain": "take a worker out of service and wait until nobody is live; the process stays up",
        "resume": "bring a drained worker back",
        "status": "where a worker is, and whether it may be deleted",
        "trace": "the hops of requests that have ended",
    }
    parser = argparse.ArgumentParser(prog=f"dynamo-actor-worker {command}", description=about[command])
    parser.add_argument("--url", help="the worker's system server (default: 127.0.0.1, port DYN_SYSTEM_PORT)")
    parser.add_argument("--json", action="store_true", help="the worker's answer as it came")
    if command == "drain":
        parser.add_argument(
            "--timeout", type=_seconds, metavar="S", help="seconds the drain may take (default: the worker's)"
        )
    if command == "trace":
        parser.add_argument(
            "which", nargs="?", default="last", help="last, slowest, failed, or an engine or context id"
        )
    return parser


def _seconds(given: str) -> float:
    """What the worker takes as a drain's time. Refused here, argparse names the option and ends with 2."""
    with suppress(ValueError):
        if 0 <= (seconds := float(given)) <= _LONGEST_DRAIN_S:
            return seconds
    raise argparse.ArgumentTypeError(f"{given!r} is not allowed: seconds from 0 to {_LONGEST_DRAIN_S:.0f}")


def _default_url(environ: Mapping[str, str]) -> str | None:
    port = environ.get("DYN_SYSTEM_PORT")
    return f"http://127.0.0.1:{port}" if port else None


def _body(command: str, words: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, Any]:
    token = environ.get("DYN_ACTOR_CONTROL_TOKEN")
    body: dict[str, Any] = {} if token is None else {"token": token}
    if command == "drain" and words.timeout is not None:
        body["timeout_s"] = words.timeout
    if command == "trace":
        body["which"] = int(words.which) if words.which.isdecimal() else words.which
    return body


def _patience_s(command: str, words: argparse.Namespace) -> float:
    if command != "drain":
        return _ANSWER_S
    return _ANSWER_S + (_LONGEST_DRAIN_S if words.timeout is None else words.timeout)


def _address(url: str) -> tuple[str, int]:
    """Host and port. Raises ValueError where there is no such thing."""
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError("not an http address")
    return parts.hostname, parts.port or http.client.HTTP_PORT


def _post(address: tuple[str, int], command: str, body: dict[str, Any], patience_s: float) -> dict[str, Any]:
    connection = http.client.HTTPConnection(*address, timeout=patience_s)
    try:
        connection.request(
            "POST", f"/engine/control/{command}", json.dumps(body), {"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
    except http.client.HTTPException as exc:
        raise ControlFailed(f"what answers does not speak HTTP: {exc!r}") from exc
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK:
        raise ControlFailed(f"the worker refused (HTTP {response.status}): {text}")
    return _understood(text)


def _understood(text: str) -> dict[str, Any]:
    """Every answer of a worker of ours has a state or stories.

    While it shuts down, ai-dynamo 1.6 answers in its place, with HTTP 200.
    """
    try:
        answer: Any = json.loads(text)
    except ValueError:
        answer = None
    match answer:
        case {"state": _} | {"stories": _}:
            return cast("dict[str, Any]", answer)
        case {"status": "error", "message": message}:
            raise ControlFailed(f"the framework refused: {message}")
        case _:
            raise ControlFailed(f"what answers is no worker of ours: {shorten(text)}")


def _shown(command: str, answer: dict[str, Any], *, as_json: bool) -> str:
    if as_json:
        return json.dumps(answer, indent=2) + "\n"
    if command == "trace":
        stories = answer["stories"]
        if not stories:
            return "no such request is kept\n"
        return "\n\n".join("\n".join(render_waterfall(story)) for story in stories) + "\n"
    verdict = "safe to delete" if answer["safe_to_delete"] else "NOT safe to delete"
    if answer["state"] == "drained" and answer.get("in_discovery"):
        verdict += ": frontends still find it"
    lines = [f"{answer['state']}: {answer['live']} live, {answer['in_flight']} in the engine; {verdict}"]
    if "interrupted" in answer:
        lines.append(_drained(answer))
    return "\n".join(lines) + "\n"


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
