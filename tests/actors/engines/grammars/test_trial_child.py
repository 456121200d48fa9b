"""The process that tries constraints: what ends it, and what does not."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from actors.engines.grammars import trial_child
from actors.engines.grammars.limits import MOST_RULES
from actors.engines.grammars.trial_child import NoTrial, TrialChild, TrialFailed
from actors.engines.grammars.trials import LLGUIDANCE
from tests.actors.engines.grammars.deadly import GOOD, GREEDY, OVERFLOWING, SLOW

if TYPE_CHECKING:
    from collections.abc import Generator

    from protocols.spec import Guided
    from tests.actors.engines.grammars.world import Guide

PATIENT_S = 15.0


def request(guided: Guided) -> dict[str, Any]:
    return {"kind": guided.kind.value, "constraint": guided.constraint}


@contextmanager
def child_of(guide: Guide) -> Generator[TrialChild]:
    """It is gone afterwards, and no zombie is left."""
    child = TrialChild(guide.vocabulary, LLGUIDANCE)
    try:
        yield child
    finally:
        child.kill()
        child.wait()
    assert not psutil.pid_exists(child.pid)


def wait_until_at_work(pid: int) -> None:
    """Until it has computed for a while more than it had."""
    process = psutil.Process(pid)
    used_s = process.cpu_times().user
    while process.cpu_times().user < used_s + 0.1:
        time.sleep(0.005)


def test_a_verdict(guide: Guide) -> None:
    """Of a good constraint it says what its grammar costs, of a bad one why it is refused; it stays."""
    with child_of(guide) as child:
        good = child.try_out(request(GOOD), PATIENT_S)
        bad = child.try_out({"kind": "regex", "constraint": "[a-"}, PATIENT_S)
        again = child.try_out(request(GOOD), PATIENT_S)
    assert 0 < good["kept_bytes"] < 2**21
    assert 0 < good["cpu_s"] < 1
    assert again.keys() == good.keys()
    field, shown, allowed = bad["refused"]
    assert (field, shown) == ("sampling_options.guided_decoding.regex", "'[a-'")
    assert "llguidance" in allowed


def test_a_stack_that_overflows_is_its_own(guide: Guide) -> None:
    """What would be a segmentation fault of the worker ends the process."""
    with child_of(guide) as child:
        with pytest.raises(TrialFailed):
            child.try_out(request(OVERFLOWING), PATIENT_S)
        assert child.wait() in {-signal.SIGSEGV, -signal.SIGBUS}


def test_the_same_ends_a_process_that_compiles_it_directly(guide: Guide, tmp_path: Path) -> None:
    """So the constraint of the test above is a deadly one, on a thread with a usual stack."""
    (tmp_path / "vocabulary").write_text(json.dumps(guide.vocabulary.as_plain()))
    (tmp_path / "constraint").write_text(json.dumps(request(OVERFLOWING)))
    ended = subprocess.run([sys.executable, "-c", _DIRECTLY, str(tmp_path)], timeout=PATIENT_S, check=False)
    assert ended.returncode == -signal.SIGSEGV


_DIRECTLY = """
import json, resource, sys, threading
from pathlib import Path
from actors.engines.grammars.building import build_matcher
from actors.engines.grammars.vocabulary import vocabulary_of
from protocols.spec import Guided, GuidedKind

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
folder = Path(sys.argv[1])
vocabulary = vocabulary_of(json.loads((folder / "vocabulary").read_text()))
asked = json.loads((folder / "constraint").read_text())
guided = Guided(kind=GuidedKind(asked["kind"]), constraint=asked["constraint"])
threading.stack_size(8 * 1024 * 1024)
thread = threading.Thread(target=build_matcher, args=(guided, vocabulary))
thread.start()
thread.join()
"""


def test_as_many_rules_as_are_allowed(guide: Guide) -> None:
    """Each leading to the next, they do not overflow the stack of a trial."""
    rules = "\n".join(f"r{at}: r{at + 1}" for at in range(MOST_RULES - 2))
    text = f'start: r0\n{rules}\nr{MOST_RULES - 2}: "a"'
    with child_of(guide) as child:
        assert "kept_bytes" in child.try_out({"kind": "grammar", "constraint": text}, PATIENT_S)


def test_endless_work_ends(guide: Guide, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the system's own limit, which needs no turn of the interpreter; at last by being killed."""
    monkeypatch.setattr(trial_child, "TRIAL_MEMORY_BYTES", 4 * 2**30)
    with child_of(guide) as child:
        with pytest.raises(TrialFailed):
            child.try_out(request(SLOW), PATIENT_S)
        assert child.wait() == -signal.SIGXCPU
    with child_of(guide) as child:
        with pytest.raises(TrialFailed):
            child.try_out(request(SLOW), 0.3)
        child.kill()
        assert child.wait() == -signal.SIGKILL


def test_memory_ends(guide: Guide, monkeypatch: pytest.MonkeyPatch) -> None:
    """What wants more than it may have dies of it, and not the machine; what wants little does not."""
    monkeypatch.setattr(trial_child, "TRIAL_MEMORY_BYTES", 48 * 2**20)
    with child_of(guide) as child:
        assert "kept_bytes" in child.try_out(request(GOOD), PATIENT_S)
        with pytest.raises(TrialFailed):
            child.try_out(request(GREEDY), PATIENT_S)
        assert child.wait() != 0


def test_killed_while_idle(guide: Guide) -> None:
    """The next constraint is not blamed for it."""
    with child_of(guide) as child:
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(NoTrial):
            child.try_out(request(GOOD), PATIENT_S)


def test_killed_at_work(guide: Guide) -> None:
    """The constraint at hand has failed, at once."""
    failures: list[Exception] = []

    def work() -> None:
        try:
            child.try_out(request(SLOW), PATIENT_S)
        except TrialFailed as exc:
            failures.append(exc)

    with child_of(guide) as child:
        thread = threading.Thread(target=work)
        thread.start()
        wait_until_at_work(child.pid)
        os.kill(child.pid, signal.SIGKILL)
        thread.join(PATIENT_S)
        assert len(failures) == 1


def test_one_that_was_stopped(guide: Guide) -> None:
    """A process that does not even look at a constraint holds nobody up for longer than the limit."""
    with child_of(guide) as child:
        os.kill(child.pid, signal.SIGSTOP)
        with pytest.raises(NoTrial):
            child.try_out({"kind": "regex", "constraint": "a" * 400_000}, 0.2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_that_are_the_worker_s(guide: Guide, number: signal.Signals) -> None:
    """A drain needs it to the last: it neither hears the terminal nor a polite end."""
    with child_of(guide) as child:
        os.kill(child.pid, number)
        assert "kept_bytes" in child.try_out(request(GOOD), PATIENT_S)
        assert os.getsid(child.pid) != os.getsid(0)


def test_sockets_are_not_inherited(guide: Guide) -> None:
    """Not even one that is marked as to be inherited: its other end hears that it was closed."""
    ours, theirs = socket.socketpair()
    with ours:
        theirs.set_inheritable(True)
        with child_of(guide):
            theirs.close()
            ours.settimeout(PATIENT_S)
            assert ours.recv(1) == b""


def test_what_it_knows_of_the_worker(guide: Guide, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of its environment but where programs and libraries are."""
    monkeypatch.setenv("A_SECRET", "a secret")
    with child_of(guide) as child:
        environment = psutil.Process(child.pid).environ()
    assert "A_SECRET" not in environment
    assert environment.keys() <= {
        "PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TMPDIR", "MALLOC_ARENA_MAX", "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS", "PYTHONUTF8", "PYTHONPATH",
    }  # fmt: skip


_WORKER = """
import json, sys, threading
from pathlib import Path
from actors.engines.grammars.trial_child import TrialChild
from actors.engines.grammars.trials import LLGUIDANCE
from actors.engines.grammars.vocabulary import vocabulary_of

folder = Path(sys.argv[1])
child = TrialChild(vocabulary_of(json.loads((folder / "vocabulary").read_text())), LLGUIDANCE)
print(child.pid, flush=True)
if sys.argv[2] == "at work":
    child.try_out(json.loads((folder / "constraint").read_text()), 60)
sys.stdin.read()
"""


@pytest.mark.parametrize("doing", ["idle", "at work"])
def test_it_ends_with_its_worker(guide: Guide, tmp_path: Path, doing: str) -> None:
    """Also where that was killed and could tell nobody."""
    (tmp_path / "vocabulary").write_text(json.dumps(guide.vocabulary.as_plain()))
    (tmp_path / "constraint").write_text(json.dumps(request(SLOW)))
    worker = subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(tmp_path), doing], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with worker:
        assert worker.stdout is not None
        child = psutil.Process(int(worker.stdout.readline()))
        if doing == "at work":
            wait_until_at_work(child.pid)
        worker.kill()
    child.wait(PATIENT_S)
