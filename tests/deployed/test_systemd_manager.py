"""The shipped unit under a real systemd, with a real worker: what it waits for, and what it starts again."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from service.demo.processes import free_port
from tests.built_in import built_in_model
from tests.deploy.service_manager import ServiceManager, run_or_skip
from tests.e2e.roles import PROGRAM as WITH_DOUBLE
from tests.e2e.stacks import PROGRAM, Reader, Stack
from tests.e2e.tiny_model import write_tiny_model
from tests.e2e.waiting import wait_until
from tests.e2e.word_model import word_of, write_word_model

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

WORKER = "dynamo-actor-worker@0"
# Tests do not wait a quarter of a minute to see that somebody is started again.
SOON = "RestartSec=1"

Run = Callable[..., ServiceManager]


@pytest.fixture(scope="module")
def word_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model without weights."""
    return write_word_model(tmp_path_factory.mktemp("word-model"))


@pytest.fixture
def run(tmp_path: Path, word_model: Path) -> Iterator[Run]:
    """A manager that knows the unit. double: script of TensorRT-LLM's; None: an engine without a model."""
    with ExitStack() as last:

        def make(double: dict[str, object] | None = None, **environ: str) -> ServiceManager:
            own = {
                "DYN_TRTLLM_MODEL": str(word_model),
                "DYN_ACTOR_ENGINE": "synthetic" if double is None else "trtllm",
                "DYN_DISCOVERY_BACKEND": "file",
                "DYN_FILE_KV": str(tmp_path / "stack" / "discovery"),
                "DYN_SYSTEM_PORT": str(free_port()),
                "DYN_TCP_RPC_HOST": "127.0.0.1",
                "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0.5",
                "HF_HUB_OFFLINE": "1",
                "TENSORRT_LLM_DOUBLE": json.dumps(double or {}),
            }
            # The worker's user is nobody here: it may write where everybody may.
            folder = Path(own["DYN_FILE_KV"])
            folder.mkdir(parents=True)
            folder.chmod(0o777)
            program = PROGRAM if double is None else WITH_DOUBLE
            return last.enter_context(run_or_skip(tmp_path, {**own, **environ}, program))

        yield make


def test_a_start_waits_until_the_worker_is_in_discovery_and_a_stop_until_it_has_ended(
    run: Run, tmp_path: Path
) -> None:
    """`systemctl start` comes back when frontends find it, under the unit's restrictions; it ends with 0."""
    manager = run()
    manager.ctl("start", WORKER)
    instances = tmp_path / "stack" / "discovery" / "v1" / "instances"
    assert [path for path in instances.rglob("*") if path.is_file()]
    told = manager.all()
    assert (told["ActiveState"], told["SubState"]) == ("active", "running")
    assert told["StatusText"] == f"serving {manager.show('StatusText').split()[1]} with synthetic"
    manager.ctl("stop", "--no-block", WORKER)
    manager.wait_for("ActiveState", "inactive")
    assert manager.all()["Result"] == "success"
    assert "worker.ended code=0" in manager.log()


def test_the_worker_is_nobody_and_may_nothing(run: Run) -> None:
    """A user of its own, no capability now or ever, and filters of the kernel's; it serves all the same."""
    manager = run()
    manager.ctl("start", WORKER)
    process = manager.status_of_process()
    user, *_ = {int(one) for one in process["Uid"].split()}
    # Where systemd takes its dynamic users from.
    assert 61184 <= user <= 65519
    assert {process[name].strip("0") for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {""}
    assert (process["NoNewPrivs"], process["Seccomp"]) == ("1", "2")


def test_a_real_engine_works_under_the_restrictions(run: Run, tmp_path: Path) -> None:
    """A model that computes, and a constraint, which is tried in a process of its own."""
    model = write_tiny_model(tmp_path / "model", built_in_model())
    manager = run(DYN_TRTLLM_MODEL=str(model), DYN_ACTOR_ENGINE="torch", DYN_ACTOR_THREADS="1")
    manager.ctl("start", WORKER)
    with ExitStack() as last:
        stack = Stack(tmp_path / "stack", [], workers=0)
        last.callback(stack.stop)
        wait_until(stack.client.models, "no model is served")
        status, body = stack.chat("Yes or no?", guided_choice=["yes", "no"], max_tokens=4)
    assert status == 200, (body, manager.log())
    assert body["choices"][0]["message"]["content"] in ("yes", "no")


def test_a_load_that_takes_longer_than_the_managers_patience_is_let_finish(run: Run) -> None:
    """The worker asks for more time while it gets on; else it would be ended after 8 s."""
    manager = run(double={"load_s": 12})
    manager.drop_in("TimeoutStartSec=8")
    manager.begin()
    manager.wait_for("StatusText", "loading")
    manager.wait_for("ActiveState", "active")
    assert manager.all()["NRestarts"] == "0"


def test_requests_in_flight_outlive_the_managers_patience(run: Run, tmp_path: Path) -> None:
    """All their tokens, although TimeoutStopSec is over long before: the worker asks for more time."""
    manager = run(DYN_ACTOR_SYNTHETIC_STEP_MS="40")
    manager.drop_in("TimeoutStopSec=3")
    manager.ctl("start", WORKER)
    with ExitStack() as last:
        stack = Stack(tmp_path / "stack", [], workers=0)
        last.callback(stack.stop)
        wait_until(stack.client.models, "no model is served")
        readers = [Reader(stack.client, stack.model(), "w5", {"max_tokens": 200}).start() for _ in range(2)]
        for reader in readers:
            reader.wait_text(2)
        manager.ctl("stop", "--no-block", WORKER)
        manager.wait_for("StatusText", "stopping: draining 2 requests")
        for reader in readers:
            assert reader.finish().error is None
            assert reader.text.split() == [word_of(i) for i in range(1000, 1200)]
    manager.wait_for("ActiveState", "inactive")
    assert manager.all()["Result"] == "success"


def test_a_configuration_that_is_refused_is_not_started_again(run: Run) -> None:
    """Failed with code 2, and why; the check before it has said so in the log too."""
    manager = run(DYN_ACTOR_MAX_LIVE="many")
    manager.drop_in(SOON)
    manager.ctl("start", WORKER, is_ok=False)
    told = manager.all()
    assert (told["ActiveState"], told["Result"], told["NRestarts"]) == ("failed", "exit-code", "0")
    assert told["ExecMainStatus"] == "2"
    assert told["StatusText"].startswith("failed (code 2, the configuration is refused): DYN_ACTOR_MAX_LIVE")
    assert manager.log().count("DYN_ACTOR_MAX_LIVE") >= 2


def test_a_worker_that_was_killed_is_started_again(run: Run) -> None:
    """And is ready again."""
    manager = run()
    manager.drop_in(SOON)
    manager.ctl("start", WORKER)
    before = manager.show("MainPID")
    manager.ctl("kill", "--kill-whom=main", "--signal=SIGKILL", WORKER)
    manager.wait_for("NRestarts", "1")
    manager.wait_for("ActiveState", "active")
    assert manager.show("MainPID") != before


def test_a_dead_engine_is_started_again(run: Run) -> None:
    """Code 70 is a failure."""
    manager = run(double={"unhealthy_from_check": 3})
    manager.drop_in(SOON)
    manager.ctl("start", WORKER)
    manager.wait_for("NRestarts", "1")
    assert "worker.ended code=70" in manager.log()


def test_a_process_that_gives_no_sign_of_life_is_ended_and_started_again(run: Run) -> None:
    """Stopped, it says nothing: the manager's watchdog ends it without waiting for anybody."""
    manager = run()
    manager.drop_in(f"{SOON}\nWatchdogSec=5")
    manager.ctl("start", WORKER)
    manager.ctl("kill", "--kill-whom=main", f"--signal={signal.SIGSTOP.name}", WORKER)
    manager.wait_for("NRestarts", "1")
    manager.wait_for("ActiveState", "active")
    assert "ended" not in manager.show("StatusText")
