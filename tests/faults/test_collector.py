"""Row 17: the OTLP collector is gone, says no, is late or says nothing, under 64 paced streams."""

from __future__ import annotations

import statistics
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from service.demo.processes import free_port
from tests.e2e.engines import Served
from tests.e2e.stacks import Stack, Worker
from tests.e2e.waiting import wait_until
from tests.faults.figures import Figures
from tests.faults.load import Kind, Load
from tests.faults.moments import read_figures
from tests.service.telemetry.collectors import Collector, grpc_collector

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]

STREAMS = 64
STEP_MS = 20
TOKENS = 150
ROUNDS = 3
# Every request has a trace, with telemetry and without, so that the workers differ in nothing else.
TRACED = {"DYN_LOGGING_JSONL": "1"}
_LOST = "dynamo_actor_spans_lost_total"
# Small, so that what a collector does not take is soon too much.
QUEUE_SPANS = 256
SPANS_A_REQUEST = 4
MOODS = ("down", "refusing", "late", "stuck")
# Generous: the goal is in the figures.
PATIENCE_S = 90.0


@dataclass
class Arm:
    """One worker with a model of this name, and its collector. rates: tokens a second, by round."""

    name: str
    port: int
    worker: Worker
    collector: Collector | None
    rates: list[float] = field(default_factory=list)
    stopped_s: float = 0.0

    def run(self) -> None:
        """One round; not one token is missing."""
        with Load(self.port, self.name) as load:
            answers = load.start(Kind.PLAIN, STREAMS, max_tokens=TOKENS)
            load.wait_ended(answers)
        assert [str(answer) for answer in answers if not answer.is_complete] == []
        ends = [answer.ended_s for answer in answers if answer.ended_s is not None]
        self.rates.append(STREAMS * TOKENS / (max(ends) - min(answer.asked_s for answer in answers)))

    @property
    def made(self) -> int:
        """Spans that the answers so far were worth."""
        return SPANS_A_REQUEST * STREAMS * len(self.rates)

    def lost(self) -> int:
        """Spans that the worker says were lost so far."""
        found = read_figures(self.worker.system.get("/metrics")[1])
        return int(sum(value for key, value in found.items() if key.startswith(_LOST)))

    def delivered(self) -> int:
        """Spans of ours that the collector took. The framework's own come to it too."""
        taken = [] if self.collector is None else self.collector.all_spans
        return sum(span.name.startswith("actor.") for span in taken)

    def stop(self) -> None:
        """A signal with 64 streams in flight; the figure is from the last answer to the end."""
        with Load(self.port, self.name) as load:
            answers = load.start(Kind.PLAIN, STREAMS, max_tokens=TOKENS)
            load.wait_tokens(3)
            self.worker.child.ask_to_stop()
            load.wait_ended(answers)
            last_s = time.monotonic()
        assert [str(answer) for answer in answers if not answer.is_complete] == []
        assert self.worker.child.wait(30) == 0
        self.stopped_s = time.monotonic() - last_s


@contextmanager
def collector_of(mood: str) -> Generator[Collector]:
    """A real OTLP server in this mood; ``down``: an address where nobody listens."""
    if mood == "down":
        nobody = Collector()
        nobody.endpoint = f"http://127.0.0.1:{free_port()}"
        yield nobody
        return
    moods: dict[str, dict[str, Any]] = {
        "refusing": {"refuses": True},
        "late": {"late_s": 1.0},
        "stuck": {"is_stuck": True},
    }
    with grpc_collector(**moods[mood]) as collector:
        yield collector


@pytest.fixture
def arms(served: Served, word_model: Path, tmp_path: Path) -> Iterator[dict[str, Arm]]:
    """One without telemetry, and one for each mood, behind one frontend."""
    options = served.words(word_model, STEP_MS)
    with ExitStack() as last:
        environ = {**TRACED, **served.environ(STEP_MS)}
        stack = Stack(tmp_path / "stack", options, workers=0, environ=environ, program=served.program)
        last.callback(stack.stop)
        found = dict[str, Arm]()
        for name in ("off", *MOODS):
            collector = None if name == "off" else last.enter_context(collector_of(name))
            worker = stack.add_worker(
                [*options, "--served-model-name", name, "--endpoint", f"dyn://dynamo.{name}.generate"],
                {} if collector is None else exporting_to(collector),
            )
            stack.workers.append(worker)
            found[name] = Arm(name, stack.http_port, worker, collector)
        stack.wait_ready()
        wait_until(lambda: set(stack.client.models()) == set(found), stack.client.models, PATIENCE_S)
        yield found


def exporting_to(collector: Collector) -> dict[str, str]:
    """The variables that send spans, and the framework's logs, there."""
    return {
        "OTEL_EXPORT_ENABLED": "1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": collector.endpoint,
        "OTEL_BSP_MAX_QUEUE_SIZE": str(QUEUE_SPANS),
    }


def settle(arm: Arm) -> None:
    """Until every span has been delivered or counted as lost: the books balance."""

    def known() -> int:
        return arm.lost() + arm.delivered()

    wait_until(
        lambda: known() == arm.made,
        lambda: f"{arm.name}: {known()} of {arm.made} spans have an end",
        PATIENCE_S,
        every_s=0.1,
    )


def test_a_collector_in_a_bad_mood_costs_spans_and_nothing_else(
    arms: dict[str, Arm], figures: Figures
) -> None:
    """Every answer is whole, every lost span is counted, and the worker ends with code 0."""
    for _ in range(ROUNDS):
        for arm in arms.values():
            arm.run()
    off = arms["off"]
    assert off.lost() == 0
    for name in MOODS:
        settle(arms[name])
        # One that is late gets them all, unless the machine is so slow that they pile up.
        assert arms[name].lost() > 0 or name == "late"
    off.stop()
    for name in MOODS:
        arm = arms[name]
        books = f"{arm.lost()} + {arm.delivered()} of {arm.made}"
        arm.stop()
        ratio = statistics.median(mine / other for mine, other in zip(arm.rates, off.rates, strict=True))
        longer_s = arm.stopped_s - off.stopped_s
        figures.record(row=17, what=f"{name}: token rate to off", value=f"{ratio:.3f}x", goal=">= 0.97x")
        figures.record(row=17, what=f"{name}: stop longer by", value=f"{longer_s:.1f} s", goal="<= 2 s")
        figures.record(row=17, what=f"{name}: spans lost + delivered", value=books, goal="all")
