"""The servers a deployment stands on go away and come back: etcd (discovery), NATS (request plane).

What the framework does, measured (1.4.2 and 1.6.1): it keeps a lease in etcd, 10 s long unless
``ETCD_LEASE_TTL`` says otherwise. Back in time, nothing has happened. Too late, it takes no new requests,
lets those in flight end, and shuts down; it never registers again. Kept alive at half its time and tried
with growing pauses, a lease surely outlives a loss of a third of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.engines import Served
from tests.e2e.servers import Etcd, Server, Servers
from tests.e2e.stacks import Stack, Worker
from tests.e2e.waiting import wait_until
from tests.faults.figures import Figures
from tests.faults.load import Answer, Kind, Load

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

STEP_MS = 20
STREAMS = 32
# The frontend holds leases too; here it outlives everything, so that what is seen is the workers'.
PATIENT = {"ETCD_LEASE_TTL": "120"}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    """Both, on ports and with data that outlive a loss."""
    with Servers(tmp_path) as both:
        yield both


@pytest.fixture
def new_stack(
    served: Served, servers: Servers, word_model: Path, tmp_path: Path
) -> Iterator[Callable[..., Stack]]:
    """A frontend and two workers that find each other through etcd. lease_s: of the workers."""
    with ExitStack() as last:

        def make(lease_s: int, plane: str = "tcp") -> Stack:
            stack = served.stack(
                tmp_path / "stack",
                word_model,
                step_ms=STEP_MS,
                workers=0,
                environ={**servers.environ, **PATIENT},
                discovery="etcd",
                plane=plane,
            )
            last.callback(stack.stop)
            add_workers(stack, lease_s)
            return stack.wait_ready()

        yield make


def add_workers(stack: Stack, lease_s: int, count: int = 2) -> list[Worker]:
    """Workers whose lease in etcd lasts so long."""
    added = [stack.add_worker(environ={"ETCD_LEASE_TTL": str(lease_s)}) for _ in range(count)]
    stack.workers += added
    return added


def lose(server: Server, lost_s: float) -> None:
    """Killed, and back with its data after that time."""
    server.kill()
    # The time is the fault itself, not a wait for something.
    time.sleep(lost_s)
    server.start_again()


def kept_alive(etcd: Etcd, lease: int) -> Callable[[], bool]:
    """Whether somebody has been seen to prolong the lease since this was called."""
    lowest = etcd.left_s(lease)

    def has_risen() -> bool:
        nonlocal lowest
        now = etcd.left_s(lease)
        if 0 <= now <= lowest:
            lowest = now
            return False
        return now > lowest

    return has_risen


def tokens_for(seconds: float) -> int:
    """As many as a stream says in that time."""
    return int(seconds * 1000 / STEP_MS)


def lost_of(answers: list[Answer]) -> str:
    """The figure, after looking at every one."""
    lost = [str(answer) for answer in answers if not answer.is_complete]
    assert lost == []
    return f"0 of {len(answers)}"


def serves(stack: Stack) -> bool:
    """Whether a new request is answered in full."""
    if not stack.client.models():
        return False
    status, body = stack.chat("w5", max_tokens=3)
    return status == 200 and len(body["choices"][0]["message"]["content"].split()) == 3


def end_in_order(workers: list[Worker]) -> None:
    """A signal to each; nothing is wrong with any of them."""
    for worker in workers:
        worker.child.ask_to_stop()
    assert [worker.child.wait(30) for worker in workers] == [0] * len(workers)


@pytest.mark.parametrize(("lost_s", "lease_s"), [(3, 20), (10, 30)])
def test_a_worker_outlives_a_loss_that_its_lease_outlives(
    servers: Servers,
    new_stack: Callable[..., Stack],
    figures: Figures,
    lost_s: int,
    lease_s: int,
) -> None:
    """Serving goes on meanwhile; afterwards the same registration is kept alive again, and SIGTERM is 0."""
    stack = new_stack(lease_s)
    leases = servers.etcd.instances()
    assert len(leases) == len(stack.workers)
    with Load(stack.http_port, stack.model()) as load:
        load.start(Kind.PLAIN, STREAMS, max_tokens=tokens_for(lost_s + 6))
        load.wait_tokens(3)
        lose(servers.etcd, lost_s)
        for lease in leases:
            wait_until(kept_alive(servers.etcd, lease), "nobody keeps the lease alive", 2 * lease_s)
        assert sorted(servers.etcd.instances()) == sorted(leases)
        assert serves(stack)
        lost = lost_of(load.finish())
        figures.record(
            row="etcd", what=f"lost {lost_s} s, lease {lease_s} s: streams lost", value=lost, goal="0"
        )
    assert all(worker.status()["in_discovery"] for worker in stack.workers)
    end_in_order(stack.workers)
    wait_until(lambda: servers.etcd.instances() == [], "a worker that ended is still registered", 10)


@pytest.mark.parametrize("lost_s", [12, 30])
def test_a_loss_that_outlives_the_lease_ends_the_worker_in_order(
    servers: Servers, new_stack: Callable[..., Stack], figures: Figures, lost_s: int
) -> None:
    """No half-alive worker: what is in flight ends in full, then code 69; a new one serves at once."""
    stack = new_stack(lease_s=10)
    ended = list(stack.workers)
    with Load(stack.http_port, stack.model()) as load:
        load.start(Kind.PLAIN, STREAMS, max_tokens=tokens_for(18))
        load.wait_tokens(3)
        lose(servers.etcd, lost_s)
        lost = lost_of(load.finish())
        assert [worker.child.wait(30) for worker in ended] == [69, 69]
        figures.record(row="etcd", what=f"lost {lost_s} s, lease 10 s: streams lost", value=lost, goal="0")
    for worker in ended:
        reason, ended_line = worker.child.last_lines()[-2:]
        assert "ETCD_LEASE_TTL" in reason
        assert "worker.ended code=69" in ended_line
    stack.workers.clear()
    started = add_workers(stack, lease_s=10)
    stack.wait_ready()
    wait_until(lambda: serves(stack), "the frontend does not find the new workers", 30)
    end_in_order(started)


def test_a_signal_while_the_framework_goes_by_itself_is_a_planned_end(
    servers: Servers, new_stack: Callable[..., Stack], figures: Figures
) -> None:
    """The lease is gone, requests run, and somebody asks the worker to stop: all end in full, code 0."""
    stack = new_stack(lease_s=10)
    with Load(stack.http_port, stack.model()) as load:
        load.start(Kind.PLAIN, STREAMS, max_tokens=tokens_for(18))
        load.wait_tokens(3)
        servers.etcd.kill()
        # The framework closes the worker's system server as its first step.
        wait_until(
            lambda: not any(worker.is_healthy() for worker in stack.workers), "the lease outlived etcd", 30
        )
        for worker in stack.workers:
            worker.child.ask_to_stop()
        lost = lost_of(load.finish())
        assert [worker.child.wait(40) for worker in stack.workers] == [0, 0]
        figures.record(row="etcd", what="lost for good, then SIGTERM: streams lost", value=lost, goal="0")


def test_a_drain_and_a_resume_by_hand_catch_up_with_etcd(
    servers: Servers, new_stack: Callable[..., Stack]
) -> None:
    """Drained while etcd is away: it leaves once etcd is back; resumed, it is found and asked again."""
    stack = new_stack(lease_s=30)
    worker, other = stack.workers
    servers.etcd.kill()
    drained = worker.control("drain", {"timeout_s": 5})
    assert (drained["state"], drained["in_discovery"]) == ("drained", True)
    servers.etcd.start_again()
    worker.wait_status(lambda state: not state["in_discovery"], 30)
    wait_until(lambda: len(servers.etcd.instances()) == 1, "it says that it has left, and has not", 10)
    servers.etcd.kill()
    assert worker.control("resume")["in_discovery"] is False
    servers.etcd.start_again()
    worker.wait_status(lambda state: state["in_discovery"], 30)
    wait_until(lambda: len(servers.etcd.instances()) == 2, "it says that it is back, and is not", 10)
    end_in_order([other])
    wait_until(lambda: serves(stack), "the frontend does not find the worker that came back", 30)
    assert worker.status()["outcomes"]["completed"] > 0
    end_in_order([worker])


def test_requests_in_flight_outlive_the_loss_of_nats(
    servers: Servers, new_stack: Callable[..., Stack], figures: Figures
) -> None:
    """Requests come over NATS, answers do not: what runs goes on, and new ones come when NATS is back."""
    stack = new_stack(lease_s=10, plane="nats")
    with Load(stack.http_port, stack.model()) as load:
        load.start(Kind.PLAIN, STREAMS, max_tokens=tokens_for(16))
        load.wait_tokens(3)
        lose(servers.nats, 10)
        wait_until(lambda: serves(stack), "no new request arrives after NATS came back", 30)
        lost = lost_of(load.finish())
        figures.record(row="nats", what="lost 10 s: streams lost", value=lost, goal="0")
    end_in_order(stack.workers)
