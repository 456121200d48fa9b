"""``sleep`` and ``wake`` from a shell: real HTTP to the routes of a real facade."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from service.control_command import control_command
from tests.doubles.maintenance import Fate, SleepyEngine
from tests.service.routes import answering, system_server
from tests.service.worker import synthetic

if TYPE_CHECKING:
    from tests.service.conftest import OpenWorker

LINE = "drained, asleep (kv_cache): 0 live, 0 sequences in the engine; safe to delete\n"


def test_a_worker_sleeps_and_wakes_from_a_shell(
    open_worker: OpenWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is not there is named as long as it is not there; the exit code of what was done is 0."""
    with open_worker(SleepyEngine()) as worker:
        worker.open()
        with system_server(worker) as url:
            assert control_command("sleep", ["--url", url, "--timeout", "5"]) == 0
            assert control_command("status", ["--url", url]) == 0
            assert capsys.readouterr().out == LINE * 2
            assert control_command("sleep", ["--url", url, "model", "kv_cache"]) == 0
            assert capsys.readouterr().out.startswith("drained, asleep (kv_cache, model): ")
            assert control_command("wake", ["--url", url]) == 0
    assert capsys.readouterr().out == "serving: 0 live, 0 sequences in the engine; NOT safe to delete\n"


def test_what_the_worker_refuses_is_one_line_and_1(
    open_worker: OpenWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the engine's name, or the engine's own words."""
    engine = SleepyEngine()
    engine.maintenance.fate = Fate.FAILS
    with open_worker(synthetic()) as worker, open_worker(engine) as moody:
        worker.open()
        moody.open()
        with system_server(worker) as url:
            assert control_command("sleep", ["--url", url]) == 1
        with system_server(moody) as url:
            assert control_command("sleep", ["--url", url]) == 1
            assert control_command("status", ["--url", url]) == 0
    captured = capsys.readouterr()
    by_name, by_words = captured.err.splitlines()
    assert "engine synthetic" in by_name
    assert by_words.endswith("sleep: no")
    assert captured.out.startswith("drained, half asleep (kv_cache): ")


@pytest.mark.parametrize(
    ("words", "body"),
    [
        ([], {}),
        (["kv_cache"], {"memories": ["kv_cache"]}),
        (["--timeout", "0", "model", "kv_cache"], {"memories": ["model", "kv_cache"], "timeout_s": 0.0}),
    ],
)
def test_the_body_has_what_was_typed(
    words: list[str], body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the token, where there is one; what was not typed is the worker's to decide."""
    monkeypatch.setenv("DYN_ACTOR_CONTROL_TOKEN", "a long secret")
    asked: list[tuple[str, dict[str, Any]]] = []

    def answer(name: str, given: dict[str, Any]) -> tuple[int, bytes]:
        asked.append((name, given))
        standing = {"state": "drained", "live": 0, "in_flight": 0, "safe_to_delete": True}
        return 200, json.dumps(standing).encode()

    with answering(answer) as url:
        assert control_command("sleep", ["--url", url, *words]) == 0
    assert asked == [("fall_asleep", {"token": "a long secret", **body})]


@pytest.mark.parametrize("given", [{"memory": 5}, {"asleep": "kv_cache"}, {"asleep": [1]}])
def test_an_answer_of_another_shape_is_one_line(
    given: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """With the field that is wrong."""
    standing = {"state": "drained", "live": 0, "in_flight": 0, "safe_to_delete": True, **given}
    with answering(lambda _name, _body: (200, json.dumps(standing).encode())) as url:
        assert control_command("wake", ["--url", url]) == 1
    assert next(iter(given)) in capsys.readouterr().err
