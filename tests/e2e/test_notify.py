"""A real worker process under a service manager: what it is told from the first word to the last."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.demo.processes import free_port
from tests.e2e.engines import Served
from tests.e2e.servers import Servers
from tests.e2e.stacks import ROOT, Reader, Stack, Worker
from tests.e2e.waiting import wait_log, wait_until
from tests.service.notify_manager import Manager

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

START_S = 60.0
GRACE_S = 0.5
# Of --drain-timeout and the hard exit, as the worker itself lays them out: service/options/budgets.py.
BEYOND_DRAIN_S = 15
# Between the operator's signal and its handler, on a machine that is busy with other things.
LATE_S = 2.0
EXTEND = "EXTEND_TIMEOUT_USEC"
SILENT = {"NOTIFY_SOCKET": "/nowhere/notify.sock", "WATCHDOG_USEC": "1000000"}

Supervised = tuple[Stack, Worker, Manager]
Supervise = Callable[..., Supervised]


@pytest.fixture
def supervise(served: Served, word_model: Path, tmp_path: Path) -> Iterator[Supervise]:
    """Makes a frontend and a worker that a manager listens to. double: script of TensorRT-LLM's.

    is_alone: without a frontend.
    """
    with ExitStack() as stacks:
        manager = stacks.enter_context(Manager(tmp_path))

        def make(
            *options: str,
            step_ms: float = 10,
            double: dict[str, Any] | None = None,
            is_alone: bool = False,
            **environ: str,
        ) -> Supervised:
            engine = Served("trtllm") if double is not None else served
            script = {} if double is None else {"TENSORRT_LLM_DOUBLE": json.dumps(double)}
            stack = Stack(
                tmp_path / "stack", engine.words(word_model, step_ms), workers=0,
                environ={**engine.environ(step_ms), **script}, program=engine.program,
                has_frontend=not is_alone,
            )  # fmt: skip
            stacks.callback(stack.stop)
            words = [*engine.words(word_model, step_ms), *options]
            asked = {"NOTIFY_SOCKET": manager.name, "WATCHDOG_USEC": "600000", **environ}
            worker = stack.add_worker(words, asked)
            stack.workers.append(worker)
            return stack, worker, manager

        yield make


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Servers]:
    """A real one, which may be killed."""
    with Servers(tmp_path) as servers:
        yield servers


def listed(folder: Path) -> list[Path]:
    """Workers in discovery, as the store has them."""
    return [path for path in (folder / "v1" / "instances").rglob("*") if path.is_file()]


def said(manager: Manager, name: str) -> list[int]:
    """Which of the messages so far say this."""
    return [place for place, told in enumerate(manager.read_all()) if name in told]


def last_words(worker: Worker, manager: Manager, code: int) -> str:
    """Its last status, read as it comes: a socket that nobody reads is full after some signs of life."""
    while not (told := manager.read(START_S) or {}).get("STATUS", "").startswith(("ended (", "failed (")):
        assert told, worker.log()
    assert worker.child.wait(20) == code
    return told["STATUS"]


def ask(stack: Stack, count: int, max_tokens: int) -> list[Reader]:
    """So many streams, each of which has begun."""
    wait_until(stack.client.models, "no model is served")
    readers = [
        Reader(stack.client, stack.model(), "w5", {"max_tokens": max_tokens}).start() for _ in range(count)
    ]
    for reader in readers:
        reader.wait_text(2)
    return readers


@pytest.mark.each_engine
def test_a_start_is_told_and_ready_means_that_frontends_find_the_worker(
    supervise: Supervise, tmp_path: Path
) -> None:
    """READY comes when the store has the instance, and not before; signs of life go on from then."""
    _, worker, manager = supervise()
    ready = manager.read_until("READY", timeout_s=START_S)
    assert len(listed(tmp_path / "stack" / "discovery")) == 1
    assert ready["STATUS"].startswith("serving ")
    assert worker.is_healthy()
    manager.read_until("WATCHDOG")
    manager.read_until("WATCHDOG")
    stages = [status.partition(" ")[0].rstrip(",:") for status in manager.statuses]
    assert list(dict.fromkeys(stages)) == ["starting", "loading", "loaded", "serving"]
    assert len(said(manager, "READY")) == 1
    assert said(manager, "STOPPING") == []
    assert max(said(manager, EXTEND)) < min(said(manager, "READY"))


@pytest.mark.each_engine
def test_a_signal_with_requests_in_flight_is_told_to_its_end(supervise: Supervise) -> None:
    """STOPPING once, how many are left, and time up to the hard exit and never beyond it; nobody is lost."""
    drain_s = 20.0
    stack, worker, manager = supervise("--drain-timeout", f"{drain_s:g}", step_ms=40)
    manager.read_until("READY", timeout_s=START_S)
    readers = ask(stack, 3, 220)
    asked_s = time.time()
    worker.send(signal.SIGTERM)
    assert last_words(worker, manager, 0) == "ended (code 0, as planned)"
    for reader in readers:
        assert reader.finish().reason == "length"
    (ready,), (stopping,) = said(manager, "READY"), said(manager, "STOPPING")
    assert ready < stopping
    extensions = [place for place in said(manager, EXTEND) if place > stopping]
    ends_s = [manager.at_s[place] + int(manager.told[place][EXTEND]) / 1e6 for place in extensions]
    assert len(ends_s) >= 2
    assert max(ends_s) <= asked_s + GRACE_S + drain_s + BEYOND_DRAIN_S + LATE_S
    assert any(
        status.startswith("stopping: draining 3 requests, for at most ") for status in manager.statuses
    )


@pytest.mark.each_engine
def test_a_second_signal_is_told_and_the_code_too(supervise: Supervise) -> None:
    """Why it ended so soon."""
    stack, worker, manager = supervise(step_ms=50)
    manager.read_until("READY", timeout_s=START_S)
    (reader,) = ask(stack, 1, 1500)
    worker.send(signal.SIGTERM)
    manager.read_until("STATUS", "stopping: draining 1 request")
    worker.send(signal.SIGTERM)
    manager.read_until("STATUS", "stopping: asked twice")
    forced = "ended (code 70, forced: asked twice, or the engine is dead)"
    assert last_words(worker, manager, 70) == forced
    assert reader.finish().error is not None
    assert len(said(manager, "STOPPING")) == 1


@pytest.mark.each_engine
def test_a_drain_by_hand_is_told_and_is_no_way_out(supervise: Supervise) -> None:
    """Drained and serving again: no STOPPING, no time asked for, no second READY."""
    _, worker, manager = supervise()
    manager.read_until("READY", timeout_s=START_S)
    before = len(manager.read_all())
    worker.control("drain", {"timeout_s": 5})
    manager.read_until("STATUS", "drained")
    worker.control("resume")
    manager.read_until("STATUS", "serving ")
    names = {name for told in manager.read_all()[before:] for name in told}
    assert names <= {"STATUS", "WATCHDOG"}


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (("--max-num-seqs", "none"), "failed (code 2, the configuration is refused): --max-num-seqs"),
        (
            ("--model", "/nowhere/model"),
            "failed (code 2, the configuration is refused): model '/nowhere/model'",
        ),
    ],
    ids=["an option", "the model"],
)
def test_a_start_that_fails_says_why_and_never_ready(
    supervise: Supervise, options: tuple[str, str], status: str
) -> None:
    """With the code that decides whether systemd tries again."""
    _, worker, manager = supervise(*options)
    assert last_words(worker, manager, 2).startswith(status)
    assert said(manager, "READY") == []


def test_an_engine_that_cannot_be_loaded_says_why_and_never_ready(supervise: Supervise) -> None:
    """In the words of stderr."""
    _, worker, manager = supervise(double={"load_error": "no such checkpoint"})
    code, _, why = last_words(worker, manager, 1).partition("): ")
    assert code == "failed (code 1, unexpected, the log says why"
    assert why[:40] in worker.log()
    assert said(manager, "READY") == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_loads_is_a_planned_end(supervise: Supervise, number: signal.Signals) -> None:
    """STOPPING without READY, and code 0."""
    _, worker, manager = supervise(double={"load_s": 60})
    manager.read_until("STATUS", "loading word-model", timeout_s=START_S)
    worker.send(number)
    assert last_words(worker, manager, 0) == "ended (code 0, as planned)"
    assert said(manager, "READY") == []
    assert len(said(manager, "STOPPING")) == 1


def test_a_dead_engine_says_why(supervise: Supervise) -> None:
    """STOPPING before anybody has sent a signal from outside; the reason stays to the end."""
    _, worker, manager = supervise(double={"unhealthy_from_check": 4})
    manager.read_until("READY", timeout_s=START_S)
    manager.read_until("STOPPING", timeout_s=START_S)
    last = last_words(worker, manager, 70)
    why = [status for status in manager.statuses if status.startswith("failed: ")][-1]
    assert "EngineDead" in why
    assert last.endswith(why.removeprefix("failed"))


def test_a_store_that_is_lost_is_told_as_an_end_that_nobody_asked_for(
    supervise: Supervise, etcd: Servers
) -> None:
    """Ready in a real etcd; when that is gone for longer than the lease: STOPPING, and a code that fails."""
    _, worker, manager = supervise(
        "--discovery-backend", "etcd", is_alone=True, ETCD_LEASE_TTL="3", **etcd.environ
    )
    manager.read_until("READY", timeout_s=START_S)
    assert len(etcd.etcd.instances()) == 1
    etcd.etcd.kill()
    manager.read_until("STOPPING", timeout_s=START_S)
    lost = "ended (code 69, a dependency is missing, or was lost)"
    assert last_words(worker, manager, 69) == lost


def test_a_store_that_is_not_there_is_what_the_start_waits_for(supervise: Supervise) -> None:
    """The status says what the framework does meanwhile, and a signal ends it."""
    nowhere = {"ETCD_ENDPOINTS": f"http://127.0.0.1:{free_port()}"}
    _, worker, manager = supervise("--discovery-backend", "etcd", is_alone=True, **nowhere)
    manager.read_until("STATUS", "starting: the framework connects to its discovery", timeout_s=START_S)
    wait_log(worker, "etcd not reachable yet")
    worker.send(signal.SIGTERM)
    assert last_words(worker, manager, 0) == "ended (code 0, as planned)"
    assert said(manager, "READY") == []


def test_children_do_not_inherit_the_managers_variables(supervise: Supervise) -> None:
    """The engine's own processes cannot speak in the worker's name."""
    _, worker, manager = supervise(double={})
    manager.read_until("READY", timeout_s=START_S)
    children = psutil.Process(worker.child.pid).children(recursive=True)
    assert children
    for child in children:
        assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & child.environ().keys()


@pytest.mark.each_engine
def test_a_manager_that_is_not_there_disturbs_nobody(supervise: Supervise) -> None:
    """The worker serves and ends as without one; one line of the log names it."""
    stack, worker, _ = supervise(**SILENT)
    for reader in ask(stack, 2, 5):
        assert reader.finish().reason == "length"
    worker.send(signal.SIGTERM)
    assert worker.child.wait(20) == 0
    assert worker.log().count("notify.not_taken error=FileNotFoundError") == 1


def test_a_check_of_the_configuration_never_says_ready(word_model: Path, tmp_path: Path) -> None:
    """As ExecStartPre it may run with the worker's variables."""
    with Manager(tmp_path) as manager:
        words = ["--engine", "synthetic", "--model", str(word_model), "--check-config"]
        done = subprocess.run(
            [sys.executable, "-m", "service", *words],
            cwd=ROOT, env={"PATH": "/usr/bin:/bin", "NOTIFY_SOCKET": manager.name},
            capture_output=True, text=True, check=False, timeout=START_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert {name for told in manager.read_all() for name in told} == {"STATUS", EXTEND}
