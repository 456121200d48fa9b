"""The worker as the first process of its namespace, as in a container, and with children."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.built_in import built_in_model
from tests.e2e.engines import Served
from tests.e2e.namespaces import skip_without
from tests.e2e.stacks import READY_S, Reader, Stack, Worker
from tests.e2e.waiting import wait_log, wait_until
from tests.e2e.word_model import word_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child")
TRIALS = "actors.engines.grammars.trial"
TOKENS = 80
STEP_MS = 20


@pytest.fixture(scope="module")
def namespaces() -> None:
    """Skips where a process may not have a namespace of its own."""
    skip_without(NAMESPACE, "users and processes")


def first_process(worker: Worker) -> psutil.Process:
    """The worker itself, seen from here: the child of what made the namespace."""
    (child,) = psutil.Process(worker.child.pid).children()
    return child


@contextmanager
def first_in_namespace(
    folder: Path, served: Served, words: list[str]
) -> Iterator[tuple[Stack, psutil.Process]]:
    """A frontend, and a worker that is process 1."""
    program = (*NAMESPACE, *served.program)
    with Stack(folder / "stack", words, program=program, environ=served.environ(STEP_MS)) as stack:
        yield stack, first_process(stack.workers[0])


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_process_1_drains_and_ends_with_0(
    served: Served, word_model: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """The kernel gives process 1 only signals that it handles; ours are, and nobody is lost."""
    with first_in_namespace(tmp_path, served, served.words(word_model, STEP_MS)) as (stack, process):
        inside = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        assert [line.split()[-1] for line in inside.splitlines() if line.startswith("NSpid")] == ["1"]
        readers = [
            Reader(stack.client, stack.model(), "w5", {"max_tokens": TOKENS}).start() for _ in range(8)
        ]
        for reader in readers:
            reader.wait_text(5)
        process.send_signal(number)
        for reader in readers:
            assert reader.finish().reason == "length"
            assert reader.text.split() == [word_of(1000 + i) for i in range(TOKENS)]
        # unshare ends as its child did.
        assert stack.workers[0].child.wait(20) == 0


@pytest.mark.usefixtures("namespaces")
def test_process_1_that_is_asked_twice_ends_with_70(served: Served, word_model: Path, tmp_path: Path) -> None:
    """Both signals arrive; the second one ends the wait."""
    with first_in_namespace(tmp_path, served, served.words(word_model, STEP_MS)) as (stack, process):
        reader = Reader(stack.client, stack.model(), "w5", {"max_tokens": 1500}).start()
        reader.wait_text(5)
        process.send_signal(signal.SIGTERM)
        stack.workers[0].wait_status(lambda state: state["state"] == "draining")
        process.send_signal(signal.SIGINT)
        assert stack.workers[0].child.wait(20) == 70
        assert reader.finish().error is not None


@pytest.mark.usefixtures("namespaces")
def test_orphans_of_others_do_not_disturb_process_1(served: Served, word_model: Path, tmp_path: Path) -> None:
    """Somebody looks into the container and leaves a process behind: it becomes ours, and the exit is 0."""
    with first_in_namespace(tmp_path, served, served.words(word_model, STEP_MS)) as (stack, process):
        enter = ["nsenter", "--target", str(process.pid), "--user", "--pid", "--preserve-credentials"]
        subprocess.run([*enter, "sh", "-c", "true & sleep 600 &"], check=True, timeout=20)
        # A zombie, too, has a name.
        left = "sleep"
        wait_until(lambda: left in [child.name() for child in process.children()], "it is not ours")
        assert stack.chat("w5", max_tokens=3)[0] == 200
        process.send_signal(signal.SIGTERM)
        assert stack.workers[0].child.wait(20) == 0


@pytest.mark.usefixtures("namespaces")
def test_process_1_leaves_neither_child_nor_zombie(served: Served, tiny_model: Path, tmp_path: Path) -> None:
    """A real engine and its process for trials: both there, none a zombie; all gone with the signal."""
    with first_in_namespace(tmp_path, served, served.words_with_weights(tiny_model)) as (stack, process):
        status, body = stack.chat("Yes or no?", guided_choice=["yes", "no"], max_tokens=4)
        assert status == 200, body
        children = process.children(recursive=True)
        assert any(TRIALS in child.cmdline() for child in children)
        assert [child for child in children if child.status() == psutil.STATUS_ZOMBIE] == []
        process.send_signal(signal.SIGTERM)
        assert stack.workers[0].child.wait(30) == 0
        assert [child for child in children if child.is_running()] == []


@contextmanager
def with_trials(served: Served, folder: Path, model: Path) -> Iterator[tuple[Worker, list[psutil.Process]]]:
    """A real engine outside of a namespace, and its children."""
    words = served.words_with_weights(model)
    stack = Stack(folder / "stack", words, has_frontend=False, program=served.program)
    try:
        worker = stack.workers[0]
        process = psutil.Process(worker.child.pid)
        wait_until(worker.is_healthy, worker.log, READY_S)
        wait_until(
            lambda: any(TRIALS in child.cmdline() for child in process.children()), "no process for trials"
        )
        yield worker, process.children(recursive=True)
    finally:
        stack.stop()


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_no_child_outlives_the_worker(
    served: Served, tiny_model: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """A signal to the whole group, as Ctrl-C in a terminal, or SIGKILL to the worker: its children end."""
    with with_trials(served, tmp_path, tiny_model) as (worker, children):
        if number is signal.SIGKILL:
            worker.send(number)
        else:
            os.killpg(worker.child.pid, number)
        assert worker.child.wait(30) == code
        wait_until(lambda: not any(child.is_running() for child in children), "a child is left", 20)


def test_a_signal_while_the_model_loads_leaves_no_child(served: Served, tmp_path: Path) -> None:
    """A real load in its middle: exit 0 at once, the process for trials is gone too."""
    words = served.words_with_weights(built_in_model())
    stack = Stack(tmp_path / "stack", words, has_frontend=False, program=served.program)
    try:
        worker = stack.workers[0]
        wait_log(worker, "model.load", READY_S)
        children = psutil.Process(worker.child.pid).children(recursive=True)
        worker.send(signal.SIGTERM)
        assert worker.child.wait(30) == 0
        wait_until(lambda: not any(child.is_running() for child in children), "a child is left", 20)
    finally:
        stack.stop()
