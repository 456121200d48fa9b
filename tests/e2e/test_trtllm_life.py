"""A worker with TensorRT-LLM's double from its load to its end: signals, Ctrl-C, sleep, and a dead engine."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from service.demo.client import StreamFailed
from tests.e2e.roles import PROGRAM
from tests.e2e.stacks import Reader, Stack, Worker
from tests.e2e.waiting import wait_until
from tests.e2e.word_model import word_of
from tests.service.options.engine_arguments.drop_in import STARTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

# What the engine needs to give its memory back.
SLEEPY = {"sleep_config": {}, "kv_cache_config": {"enable_block_reuse": False}}
StackOf = Callable[..., Stack]


@pytest.fixture
def stack_of(word_model: Path, tmp_path: Path) -> Iterator[StackOf]:
    """Makes stacks that a test may ruin. script: of the double."""
    with ExitStack() as stacks:

        def make(
            *options: str,
            step_ms: float = 10,
            script: dict[str, Any] | None = None,
            is_ready: bool = True,
            **more: Any,
        ) -> Stack:
            words = ["--engine", "trtllm", "--model", str(word_model), *options]
            environ = {"DOUBLE_STEP_MS": f"{step_ms:g}", "TENSORRT_LLM_DOUBLE": json.dumps(script or {})}
            stack = Stack(tmp_path / "stack", words, program=PROGRAM, environ=environ, **more)
            stacks.callback(stack.stop)
            return stack.wait_ready() if is_ready else stack

        yield make


def family(worker: Worker) -> list[psutil.Process]:
    """The worker, and all that it has started."""
    parent = psutil.Process(worker.child.pid)
    return [parent, *parent.children(recursive=True)]


def engine_of(worker: Worker) -> psutil.Process | None:
    """The engine's own process, once it runs: Python spawns it, and no other."""
    found = [child for child in family(worker)[1:] if "spawn_main" in " ".join(child.cmdline())]
    return found[0] if found else None


def wait_gone(processes: list[psutil.Process]) -> None:
    """Until none of them lives."""
    _, left = psutil.wait_procs(processes, timeout=10)
    assert not left


def ask(stack: Stack, count: int, max_tokens: int) -> list[Reader]:
    """So many streams, each of which has begun."""
    readers = [
        Reader(stack.client, stack.model(), "w5", {"max_tokens": max_tokens}).start() for _ in range(count)
    ]
    for reader in readers:
        reader.wait_text(2)
    return readers


def check_whole(readers: list[Reader], max_tokens: int) -> None:
    for reader in readers:
        reader.finish()
        assert reader.error is None
        assert reader.text.split() == [word_of(i) for i in range(1000, 1000 + max_tokens)]
        assert reader.reason == "length"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_loads_is_a_planned_end(stack_of: StackOf, number: signal.Signals) -> None:
    """Code 0 at once, be it that the library would go on for a minute; nothing it started is left."""
    stack = stack_of(script={"load_s": 60}, is_ready=False)
    (worker,) = stack.workers
    wait_until(lambda: engine_of(worker), "the engine's process does not come")
    started = family(worker)
    worker.send(number)
    assert worker.child.wait(20) == 0
    wait_gone(started)


def test_ctrl_c_to_the_whole_group_loses_nothing(stack_of: StackOf) -> None:
    """A terminal tells everybody: the engine does not listen, and what runs ends with all its tokens."""
    stack = stack_of()
    (worker,) = stack.workers
    started = family(worker)
    readers = ask(stack, 4, 120)
    os.killpg(worker.child.pid, signal.SIGINT)
    check_whole(readers, 120)
    assert worker.child.wait(20) == 0
    wait_gone(started)


def test_a_drain_that_takes_too_long_interrupts_and_still_ends_in_order(stack_of: StackOf) -> None:
    """The budget is over: the answer ends as one that can be moved, never as a whole one; code 0."""
    stack = stack_of("--drain-timeout", "2", step_ms=20)
    (worker,) = stack.workers
    (reader,) = ask(stack, 1, 1900)
    worker.send(signal.SIGTERM)
    reader.finish()
    assert isinstance(reader.error, StreamFailed)
    assert reader.reason is None
    words = reader.text.split()
    assert words == [word_of(i) for i in range(1000, 1000 + len(words))]
    assert worker.child.wait(20) == 0


def causes(worker: Worker) -> list[str]:
    """Lines that say why the worker has failed."""
    return [line for line in worker.log().splitlines() if "worker.failed" in line]


def check_continued(words: list[str], count: int) -> None:
    """All tokens; an engine that goes on with somebody's answer says 1000 first, as to everybody."""
    again = [place for place, word in enumerate(words) if word == word_of(1000)]
    assert len(words) == count
    assert again in ([0], [0, *again[1:2]])
    for first, last in itertools.pairwise([*again, count]):
        assert words[first:last] == [word_of(i) for i in range(1000, 1000 + last - first)]


def test_a_killed_engine_ends_its_worker_and_another_takes_over(stack_of: StackOf) -> None:
    """Its answers go on at the other worker, whole; code 70, and a line each for cause and loss."""
    stack = stack_of("--drain-timeout", "3", workers=2)
    readers = ask(stack, 6, 300)
    hit = next(worker for worker in stack.workers if worker.status()["in_flight"])
    started = family(hit)
    engine = engine_of(hit)
    assert engine is not None
    engine.kill()
    for reader in readers:
        reader.finish()
        assert (reader.error, reader.reason) == (None, "length")
        check_continued(reader.text.split(), 300)
    assert hit.child.wait(20) == 70
    assert len(causes(hit)) == 1
    (dead,) = [line for line in hit.log().splitlines() if "TensorRT-LLM is dead (" in line]
    assert "processes of it that have ended by themselves: 1" in dead
    wait_gone(started)
    assert stack.chat("w5", max_tokens=3)[0] == 200


def test_an_idle_engine_that_is_not_well_ends_its_worker(stack_of: StackOf, tmp_path: Path) -> None:
    """It leaves discovery and ends with code 70, although nobody has asked it anything."""
    stack = stack_of(script={"unhealthy_from_check": 4}, is_ready=False)
    (worker,) = stack.workers
    wait_until(lambda: worker.child.exit_code is not None, worker.log)
    assert worker.child.exit_code == 70
    assert len(causes(worker)) == 1
    assert "TensorRT-LLM is dead (EngineDead: TensorRT-LLM says that it is not well)" in worker.log()
    assert "worker.ready" in worker.log()
    registered = (tmp_path / "stack" / "discovery" / "v1" / "instances").rglob("*")
    assert not [file for file in registered if file.is_file()]


def test_a_request_that_fails_is_counted_by_its_cause(stack_of: StackOf) -> None:
    """Memory for it, or its data: one answer fails, one line says why, and the worker stays."""
    traps = [{"prompt": [30], "late_error": "out of memory for this request"}]
    stack = stack_of(script={"traps": traps})
    (worker,) = stack.workers
    status, body = stack.complete("w30 w6", max_tokens=4)
    assert status == 500, body
    assert "memory" not in json.dumps(body)
    assert stack.complete("w5 w6", max_tokens=4)[0] == 200
    _, page = worker.system.get("/metrics")
    assert re.search(r'dynamo_actor_failed_total\{[^}]*cause="engine"[^}]*\} 1.0', page)
    assert len([line for line in worker.log().splitlines() if "RequestError" in line]) == 1
    assert worker.is_healthy()


def shell(worker: Worker, *words: str) -> str:
    """A sub-command of the console script against this worker; what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "service", *words, "--url", f"http://127.0.0.1:{worker.port}"],
        capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_sleep_and_wake_by_routes_and_from_a_shell(stack_of: StackOf) -> None:
    """Asleep it is out of routing and its memory away; awake it answers as before."""
    stack = stack_of("--override-engine-args", json.dumps(SLEEPY))
    (worker,) = stack.workers
    assert worker.control("fall_asleep", {"memories": ["kv_cache"]})["asleep"] == ["kv_cache"]
    wait_until(lambda: not stack.client.models(), "the frontend still knows it")
    assert worker.control("wake")["state"] == "serving"
    wait_until(lambda: stack.client.models() and stack.chat("w5", max_tokens=3)[0] == 200, worker.log)
    assert "asleep (kv_cache, model_weights)" in shell(worker, "sleep", "kv_cache", "model_weights")
    assert "asleep" in shell(worker, "status")
    assert "serving" in shell(worker, "wake")
    wait_until(lambda: stack.client.models() and stack.chat("w5", max_tokens=3)[0] == 200, worker.log)
    status, text = worker.system.post("/engine/control/update_weights", {})
    assert "no public call" in text, status


@pytest.mark.parametrize("name", ["deploy/agg_router", "launch/agg.sh"])
def test_a_line_of_upstreams_manifests_serves(word_model: Path, tmp_path: Path, name: str) -> None:
    """Word for word, with another folder for the model."""
    (start,) = (start for start in STARTS if start.name == name)
    path = tmp_path / "engine.yaml"
    # JSON is YAML.
    path.write_text(json.dumps(dict(start.engine_file)), encoding="utf-8")
    meant = {"ENGINE_FILE": str(path)}
    words = [meant.get(word, word) for word in start.words]
    words[words.index("--model-path") + 1] = str(word_model)
    with Stack(tmp_path / "stack", words, program=PROGRAM) as stack:
        assert stack.model() == start.model
        status, body = stack.chat("w5", max_tokens=3)
        assert (status, body["usage"]["completion_tokens"]) == (200, 3)
