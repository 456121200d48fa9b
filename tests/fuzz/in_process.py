"""Hostile requests through the whole facade, many at once, and valid ones between them, served exactly."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import uvloop

from tests.doubles.bridge import LoopThread
from tests.doubles.callers import wire_request
from tests.doubles.contexts import FakeClient
from tests.fuzz.attacks import Attack, Attacker
from tests.fuzz.census import leaks, take_census
from tests.fuzz.judge import flaws_of, kind_of
from tests.fuzz.values import as_text
from tests.fuzz.workers import SpanWatch, fuzzed_worker, watched_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocols.engine import Engine
    from tests.doubles.bridge import BridgeCall
    from tests.fuzz.census import Census
    from tests.service.worker import FacadeWorker

# Under way at once. A valid request, and somebody who leaves, every so many.
_WINDOW = 24
_EVERY_VALID, _EVERY_LEAVER = 20, 33
_VALID_TOKENS = 7
_LOOK_S = 0.0005
_SAY_S = 10.0
# Of one request, on a busy machine, among others that want the whole engine.
_PATIENCE_S = 60.0
_MOST_VIOLATIONS = 10


@dataclass(slots=True)
class Findings:
    """What a run found. violations: a sentence each, with the request that made it."""

    seed: int
    requests: int = 0
    kinds: Counter[str] = field(default_factory=Counter[str])
    violations: list[tuple[str, str]] = field(default_factory=list)
    slowest_s: float = 0.0
    seconds: float = 0.0
    before: Census | None = None
    after: Census | None = None
    log_lines: int = 0
    spans: int = 0


@dataclass(slots=True)
class _Asked:
    """One call under way. attack: None for the valid request; leaves: its client hung up."""

    attack: Attack | None
    call: BridgeCall
    began_s: float
    leaves: bool = False


class InProcessRun:
    """One worker under attack. The worker is the caller's to open and to end."""

    def __init__(
        self,
        worker: FacadeWorker,
        attacker: Attacker,
        rng: Random,
        findings: Findings,
        say: Callable[[str], None],
    ) -> None:
        self._worker = worker
        self._attacker = attacker
        self._rng = rng
        self._findings = findings
        self._say = say
        self._under_way: list[_Asked] = []
        self._expected: list[int] = []

    def run(self, requests: int) -> None:
        """All of them; then the worker at rest, which must be as empty as before."""
        worker, findings = self._worker, self._findings
        self._expected = worker.generate(_valid()).read_to_end().tokens
        self._settle()
        findings.before = take_census(worker)
        began_s = said_s = time.monotonic()
        for number in range(1, requests + 1):
            self._attack(number)
            if number % _EVERY_VALID == 0:
                self._ask(None, worker.ask(_valid()))
            self._read_until(_WINDOW)
            if time.monotonic() - said_s > _SAY_S:
                said_s = time.monotonic()
                self._say(f"  {number:,} of {requests:,}, {len(findings.violations)} violations")
            if len(findings.violations) >= _MOST_VIOLATIONS:
                self._say("  stopped: enough violations")
                break
        self._ask(None, worker.ask(_valid()))
        self._read_until(0)
        self._settle()
        findings.seconds = time.monotonic() - began_s
        findings.after = take_census(worker)
        findings.violations += [
            (leak, "after the run") for leak in leaks(worker, findings.before, findings.after)
        ]

    def _attack(self, number: int) -> None:
        attack = self._attacker.next()
        client = FakeClient(attack.context_id, attack.metadata, attack.trace_headers)
        asked = self._ask(attack, self._worker.ask(attack.wire, client))
        self._findings.requests += 1
        if number % _EVERY_LEAVER == 0:
            asked.leaves = True
            self._leave(client)

    def _ask(self, attack: Attack | None, call: BridgeCall) -> _Asked:
        asked = _Asked(attack, call, time.monotonic())
        self._under_way.append(asked)
        return asked

    def _leave(self, client: FakeClient) -> None:
        """Hang up, in one of the ways a framework has for it."""
        match self._rng.randrange(3):
            case 0:
                self._worker.leave(client)
            case 1:
                client.leave()
            case _:
                self._worker.abort(client)

    def _read_until(self, left: int) -> None:
        """Read all that are under way, each as soon as it has something, until so few are left."""
        while len(self._under_way) > left:
            ready = [asked for asked in self._under_way if asked.call.is_step_done]
            for asked in ready:
                if asked.call.finish_step() is None:
                    self._close(asked)
                else:
                    asked.call.begin_step()
            if not ready:
                self._give_up()
                time.sleep(_LOOK_S)

    def _give_up(self) -> None:
        """On what has been under way for too long: a promise is broken, and the run goes on."""
        for asked in list(self._under_way):
            if time.monotonic() - asked.began_s > _PATIENCE_S:
                self._violated("a step never came back", asked.attack)
                self._under_way.remove(asked)

    def _close(self, asked: _Asked) -> None:
        self._under_way.remove(asked)
        self._findings.slowest_s = max(self._findings.slowest_s, time.monotonic() - asked.began_s)
        kind = kind_of(asked.call)
        if asked.attack is None:
            kind = "valid, served exactly"
            if asked.call.tokens != self._expected or asked.call.finish_reasons != ["length"]:
                kind = "valid, spoilt"
                self._violated(f"a valid request got {asked.call.tokens} {asked.call.error!r}", None)
        else:
            if asked.leaves and asked.call.finish_reasons == ["cancelled"]:
                asked.attack.forbidden.clear()
            for flaw in flaws_of(asked.attack, asked.call):
                self._violated(flaw, asked.attack)
        self._findings.kinds[kind] += 1
        asked.call.forget()
        self._worker.calls.remove(asked.call)

    def _settle(self) -> None:
        """At rest, or as near to it as it gets: what is left then is counted as a leak."""
        self._worker.calls.clear()
        with suppress(AssertionError):
            self._worker.settle_engine()
            self._worker.until(lambda: self._worker.facade.open_readers == 0)

    def _violated(self, flaw: str, attack: Attack | None) -> None:
        self._say(f"  violation: {flaw[:300]}")
        told = {} if attack is None else {each: getattr(attack, each) for each in attack.__slots__}
        self._findings.violations.append(
            (flaw, as_text({**told, "forbidden": sorted(told.get("forbidden", ()))}))
        )


def attack_engine(engine: Engine, requests: int, seed: int, say: Callable[[str], None]) -> Findings:
    """A worker around this engine, so many hostile requests, and what was found."""
    findings = Findings(seed)
    rng = Random(seed)
    attacker = Attacker(rng, tuple(sorted(engine.capabilities.processors)))
    spans = SpanWatch()
    with watched_log() as log, LoopThread(uvloop.new_event_loop) as loop:
        worker = fuzzed_worker(loop, engine, spans)
        try:
            InProcessRun(worker, attacker, rng, findings, say).run(requests)
        finally:
            worker.end()
        findings.violations += [("the loop complains", str(each)) for each in loop.complaints]
    findings.log_lines, findings.spans = log.lines, spans.spans
    findings.violations += [("the log shows content, or a bug", line) for line in log.bad]
    findings.violations += [("a span shows content", text) for text in spans.bad]
    return findings


def _valid() -> dict[str, Any]:
    return wire_request(max_tokens=_VALID_TOKENS)
