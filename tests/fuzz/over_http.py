"""Hostile bodies against a real frontend and a real worker; each answer is held against the worker's books.

Every request carries a trace of its own, which stands in the worker's log line about it: what a client was
told and what the worker says became of the request are compared one by one.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from io import BytesIO
from random import Random
from typing import TYPE_CHECKING, Any

import aiohttp

from tests.e2e.at_rest import is_at_rest
from tests.e2e.health_watch import HealthWatch
from tests.e2e.request_lines import TRACED, request_lines, trace_header, trace_id
from tests.fuzz.bodies import Body, BodyMaker
from tests.fuzz.judge import ENGINE_TEXTS
from tests.fuzz.workers import shows_content

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.e2e.engines import Served
    from tests.e2e.stacks import Stack, Worker

_WINDOW = 16
_PATIENCE_S = 90.0
_MB = 1024 * 1024


@dataclass(slots=True)
class HttpFindings:
    """What a run found. ends: by route, form, status and what the worker says. rss_mb: of the worker."""

    seed: int
    requests: int = 0
    seconds: float = 0.0
    ends: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])
    outcomes: dict[str, int] = field(default_factory=dict)
    violations: list[tuple[str, str]] = field(default_factory=list)
    rss_mb: tuple[float, float] = (0.0, 0.0)
    tasks: tuple[int, int] = (0, 0)
    health_polls: int = 0


@dataclass(slots=True)
class Reply:
    """What a client saw. status 0: no answer; has_end: a finish reason or an error came."""

    number: int
    body: Body
    status: int = 0
    text: str = ""
    has_left: bool = False

    @property
    def has_error(self) -> bool:
        return self.status != 200 or "event: error" in self.text or '"error":' in self.text

    @property
    def has_reason(self) -> bool:
        return '"finish_reason":"' in self.text


def attack_frontend(
    folder: Path, served: Served, model: Path, requests: int, seed: int, say: Callable[[str], None]
) -> HttpFindings:
    """A frontend and a worker with this model, so many bodies, and what was found."""
    findings = HttpFindings(seed)
    options = ["--max-num-seqs", "8"]
    options += ["--logits-processor", "cool=tests.actors.engines.torch.hostile_processors:Temperature"]
    with served.stack_with_weights(folder, model, *options, environ=TRACED) as stack:
        worker = stack.workers[0]
        name = stack.model()
        maker = BodyMaker(Random(seed), name, ("cool",), worker_vocab(model))
        _check_valid(stack, findings)
        before = worker.wait_status(is_at_rest, 60.0)
        began_s = time.monotonic()
        with HealthWatch(worker) as health:
            replies = asyncio.run(_send_all(stack.http_port, maker, requests, say))
        findings.seconds = time.monotonic() - began_s
        _check_valid(stack, findings)
        try:
            after = worker.wait_status(is_at_rest, 60.0)
        except AssertionError as exc:
            findings.violations.append(("the worker is not at rest", str(exc)))
            after = worker.status()
        findings.requests, findings.health_polls = len(replies), health.polls
        findings.violations += [("/health is not 200", text) for text in health.bad]
        findings.rss_mb = (before["rss_bytes"] / _MB, after["rss_bytes"] / _MB)
        findings.tasks = (before["tasks"], after["tasks"])
        findings.outcomes = after["outcomes"]
        _compare(replies, worker, before, after, findings)
    return findings


def worker_vocab(model: Path) -> int:
    """Token ids the model has."""
    return int(json.loads((model / "config.json").read_text(encoding="utf-8"))["vocab_size"])


def _check_valid(stack: Stack, findings: HttpFindings) -> None:
    status, body = stack.chat("hello", max_tokens=3, ignore_eos=True)
    if status != 200 or body["usage"]["completion_tokens"] != 3:
        findings.violations.append((f"a valid request got {status}", str(body)[:500]))


async def _send_all(port: int, maker: BodyMaker, requests: int, say: Callable[[str], None]) -> list[Reply]:
    replies = [Reply(number, maker.next()) for number in range(1, requests + 1)]
    waiting = iter(replies)
    said_s = time.monotonic()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_PATIENCE_S)) as session:

        async def serve() -> None:
            nonlocal said_s
            for reply in waiting:
                await _send(session, port, reply)
                if time.monotonic() - said_s > 10:
                    said_s = time.monotonic()
                    say(f"  {reply.number:,} of {requests:,}")

        await asyncio.gather(*(serve() for _ in range(_WINDOW)))
    return replies


async def _send(session: aiohttp.ClientSession, port: int, reply: Reply) -> None:
    body = reply.body
    sent = {
        "content-type": "application/json",
        **trace_header(reply.number),
        **body.headers,
    }
    try:
        async with asyncio.timeout(body.leaves_s):
            url = f"http://127.0.0.1:{port}{body.route}"
            async with session.post(url, data=BytesIO(body.payload), headers=sent) as response:
                reply.status = response.status
                reply.text = (await response.read()).decode(errors="replace")
    except TimeoutError:
        reply.has_left = body.leaves_s is not None
    except aiohttp.ClientError as exc:
        reply.text = repr(exc)


def _compare(
    replies: list[Reply],
    worker: Worker,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    findings: HttpFindings,
) -> None:
    """Every reply against the worker's lines about it, and the books against themselves."""
    lines = worker.log().splitlines()
    books = request_lines(lines)
    for reply in replies:
        told = books.get(trace_id(reply.number), [])
        words = "+".join(sorted({line["outcome"] for line in told})) or "never seen"
        form = "stream" if reply.body.is_stream else "unary"
        form += ", codes hidden" if reply.body.hides_codes else ""
        status = "left" if reply.has_left else str(reply.status)
        if status == "200" and reply.has_error:
            status = "200, error event"
        findings.ends[f"{reply.body.route} {form}", status, words] += 1
        for flaw in flaws_of_reply(reply, told):
            findings.violations.append((flaw, f"{reply.body}\n\n{reply.text[:2000]}\n\n{told}"))
    bugs = [line[:500] for line in lines if "internal_error" in line or "listener_failed" in line]
    bugs += [line[:500] for line in lines if "request.ended" in line and shows_content(line)]
    findings.violations += [("the worker's log has a bug or content", line) for line in bugs[:10]]
    if after["started"] != sum(after["outcomes"].values()):
        findings.violations.append(("the books do not balance", str(after)))
    if after["tasks"] > before["tasks"]:
        findings.violations.append((f"tasks grew from {before['tasks']} to {after['tasks']}", ""))


def flaws_of_reply(reply: Reply, told: list[dict[str, Any]]) -> list[str]:
    flaws: list[str] = []
    outcomes = {line["outcome"] for line in told}
    if reply.has_left:
        return flaws
    if reply.status == 0:
        flaws.append(f"no answer: {reply.text[:200]}")
    if reply.status == 200 and not reply.has_error and not reply.has_reason:
        flaws.append("a silent end")
    if reply.status >= 500 and not reply.body.hides_codes and outcomes == {"refused"}:
        flaws.append(f"{reply.status} for a client's mistake")
    if reply.status == 200 and not reply.has_error and outcomes & {"refused", "failed"}:
        flaws.append(f"served, and the worker says {outcomes}")
    flaws += [f"the worker says {line['outcome']} ({line.get('error')})" for line in told if _is_ours(line)]
    return flaws


def _is_ours(line: dict[str, Any]) -> bool:
    """Whether a line says that something broke which is no request's own fault."""
    if line["outcome"] == "failed":
        return ENGINE_TEXTS.match(line.get("error") or "") is None
    return bool(line["outcome"] == "interrupted")
