"""A thread that is busy, blocked or stuck in a step: what the graph around it sees and goes on doing."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.torch import TorchConfig, TorchEngine
from actors.engines.torch.attention import PagedAttention
from actors.engines.torch.scheduler import Scheduler
from actors.graph import open_graph
from actors.settings import GraphSettings
from actors.supervisor import FutureWakeup
from actors.surroundings import Surroundings
from protocols.errors import DeadlineExceeded, EngineDead, EngineShutdown, Overloaded
from protocols.telemetry import AbortResult, AbortStory, Outcome
from tests.actors.deaths import causes
from tests.actors.world import Visit
from tests.doubles.callers import FakeCaller, wire_request
from tests.doubles.listeners import RecordingTelemetry

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from actors.graph import Graph

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

HANG_S = 1.0
# For whatever is promised without a figure.
PATIENCE_S = 20.0


class Held:
    """Stands in every attention call: computes slowly, or does not come back before it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pause_s = 0.0
        self.calls = 0
        self.is_blocking = False
        self.reached, self.released = threading.Event(), threading.Event()
        attend = PagedAttention._attend_span

        def held(step: Any, call: Any, span: Any) -> Any:
            self.calls += 1
            if self.is_blocking:
                self.reached.set()
                self.released.wait(PATIENCE_S)
            time.sleep(self.pause_s)
            return attend(step, call, span)

        monkeypatch.setattr(PagedAttention, "_attend_span", held)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


class HearsConfirmed(RecordingTelemetry):
    """Lets a test wait until the engine has let go of somebody."""

    def __init__(self) -> None:
        super().__init__()
        self.confirmed = asyncio.Event()

    def abort_told(self, abort: AbortStory) -> None:
        super().abort_told(abort)
        if abort.result is AbortResult.CONFIRMED:
            self.confirmed.set()


class Service:
    """An open graph around the real engine, on the worker's loop."""

    def __init__(self, graph: Graph, telemetry: HearsConfirmed) -> None:
        self.graph = graph
        self.telemetry = telemetry

    def ask(self, caller: FakeCaller | None = None, **options: Any) -> Visit:
        return Visit(self.graph, caller or FakeCaller(), wire_request(**options))

    async def warm_up(self) -> None:
        """The worker's first step, before which nobody looks for a hang."""
        await asyncio.wait_for(self.ask(max_tokens=1).answer(), PATIENCE_S)

    async def come_to_rest(self) -> None:
        """Until the engine has nothing of ours, or the test fails."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.graph.executor.is_idle:
                self.telemetry.confirmed.clear()
                await self.telemetry.confirmed.wait()


@asynccontextmanager
async def serving(
    folder: Path, on_crash: Callable[[BaseException], None], settings: GraphSettings, **config: Any
) -> AsyncGenerator[Service]:
    engine = TorchEngine(
        TorchConfig(
            model_path=folder, device="cpu", threads=1, kv_block_tokens=8, **{"max_num_seqs": 8, **config}
        )
    )
    telemetry = HearsConfirmed()
    around = Surroundings(
        engine=engine,
        telemetry=telemetry,
        clock=time.monotonic,
        on_crash=on_crash,
        new_wakeup=FutureWakeup,
    )
    async with open_graph(settings, around) as graph:
        yield Service(graph, telemetry)


async def test_a_long_prompt_in_one_step_is_no_hang(
    held: Held, model_folder: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Unchunked, and computed for several time-outs: a sign of life comes with every layer and piece."""
    crashes: list[BaseException] = []
    settings = GraphSettings(hang_timeout_s=HANG_S)
    config = {"step_tokens": 256, "is_chunked_prefill": False}
    async with serving(model_folder("llama"), crashes.append, settings, **config) as service:
        await service.warm_up()
        held.calls, held.pause_s = 0, HANG_S / 4
        visit = service.ask(prompt=[1 + number % 300 for number in range(250)], max_tokens=1)
        started_s = time.monotonic()
        answer = await visit.answer()
        took_s = time.monotonic() - started_s
        assert held.calls == 3 * 4  # layers, pieces
        assert took_s >= held.calls * held.pause_s > 2 * HANG_S
        assert (len(answer.tokens), answer.error, crashes) == (1, None, [])
    with capsys.disabled():
        print(f"\n  one step of {took_s:.1f} s under a hang time-out of {HANG_S:g} s: no alarm")


async def test_a_thread_that_is_stuck_is_a_hang(
    held: Held, model_folder: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """In the middle of a request, in the middle of a step: the graph dies of it, and everybody is told."""
    crashes: list[BaseException] = []
    stuck_s = 0.0

    def note(exc: BaseException) -> None:
        crashes.append(exc)
        held.released.set()

    visits: list[Visit] = []

    async def serve() -> None:
        nonlocal stuck_s
        settings = GraphSettings(hang_timeout_s=HANG_S)
        async with serving(model_folder("llama"), note, settings) as service:
            await service.warm_up()
            visits.append(service.ask(max_tokens=200))
            await visits[0].reader.read()
            held.is_blocking = True
            await asyncio.to_thread(held.reached.wait, PATIENCE_S)
            stuck_s = time.monotonic()
            await asyncio.sleep(PATIENCE_S)

    with pytest.raises(ExceptionGroup):
        await serve()
    took_s = time.monotonic() - stuck_s
    assert [type(cause) for cause in causes(crashes[0])] == [EngineDead]
    assert HANG_S * 0.9 <= took_s < PATIENCE_S
    answer = await visits[0].answer()
    assert isinstance(answer.error, EngineShutdown)
    assert answer.tokens
    with capsys.disabled():
        print(f"\n  a stuck thread was found out {took_s:.2f} s after it stuck ({HANG_S:g} s and a tenth)")


async def test_a_scheduler_that_plans_nothing_is_a_hang_whoever_comes_and_goes(
    monkeypatch: pytest.MonkeyPatch, model_folder: Callable[[str], Path]
) -> None:
    """Its thread obeys every command, and lets those go who leave: who stays is told in time all the same."""
    crashes: list[BaseException] = []
    visits: list[Visit] = []

    async def serve() -> None:
        settings = GraphSettings(hang_timeout_s=HANG_S)
        async with serving(model_folder("llama"), crashes.append, settings) as service:
            await service.warm_up()
            monkeypatch.setattr(Scheduler, "plan", lambda _: [])
            visits.append(service.ask(max_tokens=3))
            give_up_s = time.monotonic() + PATIENCE_S
            while time.monotonic() < give_up_s:
                guest = service.ask(max_tokens=3)
                await asyncio.sleep(HANG_S / 20)
                await guest.leave()

    with pytest.raises(ExceptionGroup):
        await serve()
    assert [type(cause) for cause in causes(crashes[0])] == [EngineDead]
    assert isinstance((await visits[0].answer()).error, EngineShutdown)


async def test_a_thread_that_blocks_for_three_seconds_holds_up_nothing_else(
    held: Held, model_folder: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Those who leave, those past their deadline and those too many are answered meanwhile; then all goes on.

    Nothing of that is queued behind the engine's thread; afterwards it confirms what was aborted.
    """
    crashes: list[BaseException] = []
    took_ms: dict[str, list[float]] = {"cancel": [], "refusal": [], "loop": []}
    settings = GraphSettings(max_live=8, hang_timeout_s=60.0)

    async def timed(kind: str, visit: Visit) -> None:
        asked_s = time.monotonic()
        await asyncio.wait_for(visit.answer(), PATIENCE_S)
        took_ms[kind].append((time.monotonic() - asked_s) * 1e3)
        assert not held.released.is_set()

    async with serving(model_folder("llama"), crashes.append, settings, max_num_seqs=4) as service:
        await service.warm_up()
        stays = service.ask(max_tokens=30)
        leaves = [service.ask(max_tokens=200) for _ in range(5)]
        late = service.ask(caller=FakeCaller(metadata={"deadline-ms": "1500"}), max_tokens=200)
        await stays.reader.read()
        held.is_blocking = True
        await asyncio.to_thread(held.reached.wait, PATIENCE_S)
        unblock_s = time.monotonic() + 3.0
        for visit in leaves:
            await visit.leave()
            await timed("cancel", visit)
            assert visit.ticket.outcome is Outcome.CANCELLED
        freed = [service.ask(max_tokens=3) for _ in range(6)]
        for _ in range(5):
            refused = service.ask(max_tokens=3)
            await timed("refusal", refused)
            assert isinstance(refused.reader.error, Overloaded)
        assert isinstance((await late.answer()).error, DeadlineExceeded)
        assert not held.released.is_set()
        while time.monotonic() < unblock_s:
            asked_s = time.monotonic()
            # How late a timer of the loop comes is what is measured.
            await asyncio.sleep(0.005)
            took_ms["loop"].append((time.monotonic() - asked_s) * 1e3 - 5)
        held.is_blocking = False
        held.released.set()
        for visit in [stays, *freed]:
            await asyncio.wait_for(visit.answer(), PATIENCE_S)
            assert visit.ticket.outcome is Outcome.COMPLETED
        assert len(stays.reader.tokens) == 30
        await service.come_to_rest()
    assert crashes == []
    with capsys.disabled():
        print("\n  while the engine's thread is blocked:", end="")
        for kind, values in took_ms.items():
            values.sort()
            print(f" {kind} p50 {values[len(values) // 2]:.1f} max {values[-1]:.1f} ms;", end="")
        print()
