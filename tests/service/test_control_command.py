"""``drain``, ``resume`` and ``status`` from a shell: real HTTP to the routes of a real facade."""

from __future__ import annotations

import json
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest
from dynamo.llm.exceptions import EngineShutdown

from protocols.telemetry import WorkerState
from service.control_command import control_command
from tests.doubles.callers import wire_request
from tests.doubles.endpoints import MoodyEndpoint
from tests.doubles.engines import ScriptedEngine
from tests.service.routes import answering, system_server
from tests.service.worker import synthetic

if TYPE_CHECKING:
    from tests.service.conftest import OpenWorker


def test_a_drain_that_lost_nobody_says_so(
    open_worker: OpenWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    """State, verdict, and that everybody finished; exit code 0 is safe to delete."""
    with open_worker() as worker:
        worker.open()
        with system_server(worker) as url:
            assert control_command("drain", ["--url", url, "--timeout", "5"]) == 0
            lines = capsys.readouterr().out.splitlines()
            assert lines[0] == "drained: 0 live, 0 sequences in the engine; safe to delete"
            assert re.fullmatch(r"drained in \d+\.\d s: 0 of 0 completed", lines[1])
            assert control_command("resume", ["--url", url]) == 0
            said = capsys.readouterr().out
            assert said == "serving: 0 live, 0 sequences in the engine; NOT safe to delete\n"


def test_a_drain_that_cut_somebody_short_says_how_many_and_what_becomes_of_them(
    open_worker: OpenWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that a frontend can continue are told from those that are lost."""
    with open_worker(synthetic(5.0)) as worker:
        worker.open()
        calls = [worker.ask(wire_request(max_tokens=1900, n=n)) for n in (1, 1, 2)]
        worker.until(lambda: worker.graph.ledger.admitted == 3)
        readers = [threading.Thread(target=call.read_to_end) for call in calls]
        for reader in readers:
            reader.start()
        with system_server(worker) as url:
            assert control_command("drain", ["--url", url, "--timeout", "0.2"]) == 0
        for reader in readers:
            reader.join()
        assert all(isinstance(call.error, EngineShutdown) for call in calls)
    assert re.search(
        r"^drained in \d+\.\d s: 0 of 3 completed, 3 interrupted by shutdown, "
        r"2 of them to be continued on another worker$",
        capsys.readouterr().out,
        re.MULTILINE,
    )


def test_a_worker_that_may_not_be_deleted_ends_the_drain_with_1(
    open_worker: OpenWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that a script that goes on with ``&&`` does not."""
    engine = ScriptedEngine(is_confirming=False)
    with open_worker(engine) as worker:
        worker.open()
        call = worker.ask(wire_request())
        worker.until(lambda: engine.live)
        reader = threading.Thread(target=call.read_to_end)
        reader.start()
        with system_server(worker) as url:
            assert control_command("drain", ["--url", url, "--timeout", "0"]) == 1
        reader.join()
        assert "drained: 0 live, 1 sequence in the engine; NOT safe to delete" in capsys.readouterr().out
        worker.finish(1)


def test_those_who_left_during_a_drain_are_not_called_completed(
    open_worker: OpenWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    """One is served to its end and one is failed by the engine: the shell tells them apart."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.open()
        calls = [worker.ask(wire_request()) for _ in range(2)]
        worker.until(lambda: len(engine.live) == 2)
        with system_server(worker) as url:
            draining = threading.Thread(target=control_command, args=("drain", ["--url", url]))
            draining.start()
            worker.until(lambda: worker.graph.drain.state is WorkerState.DRAINING)
            worker.finish(1)
            worker.fail(2, "it broke")
            for call in calls:
                call.read_to_end()
            draining.join()
    assert re.search(
        r"^drained in \d+\.\d s: 1 of 2 completed, 1 ended otherwise$", capsys.readouterr().out, re.MULTILINE
    )


def test_a_drained_worker_that_is_still_listed_says_why_it_is_not_safe(
    open_worker: OpenWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Frontends would go on asking it, and it would send everybody away."""
    with open_worker() as worker:
        worker.start()
        store = MoodyEndpoint(worker.events)
        store.is_down = True
        worker.loop.run(worker.facade.on_endpoint_ready(store))
        with system_server(worker) as url:
            assert control_command("drain", ["--url", url]) == 1
            line = "drained: 0 live, 0 sequences in the engine; NOT safe to delete: frontends still find it"
            assert capsys.readouterr().out.splitlines()[0] == line
            store.is_down = False
            worker.until(lambda: not worker.facade.discovery.is_listed)
            assert control_command("status", ["--url", url]) == 0
            assert capsys.readouterr().out == "drained: 0 live, 0 sequences in the engine; safe to delete\n"


def test_sequences_are_not_called_requests(
    open_worker: OpenWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    """One request with two choices is one that is live, and two places in the engine."""
    with open_worker(synthetic(5.0)) as worker:
        worker.open()
        worker.ask(wire_request(max_tokens=1900, n=2))
        worker.until(lambda: worker.graph.executor.running_sequences == 2)
        with system_server(worker) as url:
            assert control_command("status", ["--url", url]) == 0
    said = capsys.readouterr().out
    assert said == "serving: 1 live, 2 sequences in the engine; NOT safe to delete\n"


@pytest.mark.parametrize("words", [["--tim", "5"], ["--js"]])
def test_options_are_not_guessed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Half an option is none, whatever an option of tomorrow begins with."""
    with pytest.raises(SystemExit) as ended:
        control_command("drain", ["--url", "http://127.0.0.1:9", *words])
    assert ended.value.code == 2
    assert "unrecognized arguments" in capsys.readouterr().err


_STANDING: dict[str, Any] = {"state": "drained", "live": 0, "in_flight": 0, "safe_to_delete": True}


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ({"state": "x"}, "live"),
        ({"stories": []}, "state"),
        ({**_STANDING, "safe_to_delete": "yes"}, "safe_to_delete"),
        ({**_STANDING, "in_flight": [1]}, "in_flight"),
        ({**_STANDING, "interrupted": 0}, "live_at_start"),
        ({**_STANDING, "state": ["drained"]}, "state"),
        ({**_STANDING, "live": 10**400}, "live"),
    ],
)
@pytest.mark.parametrize("words", [[], ["--json"]], ids=["words", "json"])
@pytest.mark.parametrize("command", ["status", "drain"])
def test_an_answer_of_another_shape_is_one_line(
    command: str, words: list[str], answer: dict[str, Any], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the field that is wrong; nothing that was not understood is safe to delete."""
    with answering(lambda _name, _body: (200, json.dumps(answer).encode())) as url:
        assert control_command(command, ["--url", url, *words]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert f"the worker at {url} answers what is not understood here" in line
    assert named in line


@pytest.mark.parametrize("given", ["-20", "nan", "inf", "1e400", "86400.1", "soon", ""])
def test_a_time_that_is_none_is_refused_by_name(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anybody is called: exit code 2 with the option, the value and what is allowed."""
    with pytest.raises(SystemExit) as ended:
        control_command("drain", ["--url", "http://127.0.0.1:9", "--timeout", given])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert f"--timeout: {given!r} is not allowed: seconds from 0 to 86400" in said
