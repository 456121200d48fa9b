"""The level of the log, changed by the route and from a shell: for whom, how long, what is refused."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from dynamo.llm.exceptions import InvalidArgument

from service.log_level_command import log_level_command
from service.telemetry.levels import TARGETS, Levels
from service.telemetry.logs import get_logger
from service.telemetry.repeats import RepeatLimiter
from tests.service.routes import answering, system_server
from tests.service.telemetry.readings import all_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.service.conftest import OpenWorker
    from tests.service.telemetry.readings import Lines
    from tests.service.worker import FacadeWorker

NOBODY = "http://127.0.0.1:1"
AS_CONFIGURED = [
    {"target": target, "level": "info", "configured": "info", "left_s": None} for target in TARGETS
]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lines]:
    """What the framework would get, in a process without DYN_LOG; every level is taken back afterwards."""
    for name in ("DYN_LOG", "DYN_LOGGING_CONFIG_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("service.telemetry.logs._LIMITER", RepeatLimiter())
    with all_lines(logging.INFO) as heard:
        yield heard
    assert Levels({}).changed == frozenset()


def _said(lines: Lines) -> list[tuple[str, str, float | None]]:
    return [(line["lowest"], line["targets"], line.get("for_s")) for line in lines.named("log.level")]


def _levels(worker: FacadeWorker, **body: Any) -> dict[str, str]:
    return {entry["target"]: entry["level"] for entry in worker.control("log_level", **body)["targets"]}


def test_without_a_level_it_says_what_holds(open_worker: OpenWorker, lines: Lines) -> None:
    """Nothing changes, and nothing is said in the log."""
    with open_worker() as worker:
        assert worker.control("log_level") == {"state": "starting", "targets": AS_CONFIGURED}
    assert _said(lines) == []


def test_a_level_holds_until_it_is_taken_back(
    open_worker: OpenWorker, lines: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    """For all of ours; what the framework would drop goes to stderr, and both changes are on record."""
    with open_worker() as worker:
        assert _levels(worker, level="debug") == dict.fromkeys(TARGETS, "debug")
        get_logger("actor.request").debug("seen.now")
        get_logger("actor.request").info("passed.on")
        assert worker.control("log_level", level="configured")["targets"] == AS_CONFIGURED
        get_logger("actor.request").debug("unseen.later")
    assert len(lines.named("passed.on")) == 1
    assert lines.named("seen.now") == lines.named("unseen.later") == []
    on_stderr = capsys.readouterr().err
    assert "seen.now" in on_stderr
    assert "passed.on" not in on_stderr
    assert "unseen.later" not in on_stderr
    assert _said(lines) == [
        ("debug", "actor,actors,service", None),
        ("configured", "actor,actors,service", None),
    ]


def test_a_level_can_be_for_one_target(open_worker: OpenWorker, lines: Lines) -> None:
    """Taking back the one above takes it back as well."""
    with open_worker() as worker:
        told = _levels(worker, level="error", target="service.controls")
        assert told == {**dict.fromkeys(TARGETS, "info"), "service.controls": "error"}
        assert _levels(worker, level="configured", target="actor") == told
        assert _levels(worker, level="configured", target="service") == dict.fromkeys(TARGETS, "info")
    assert _said(lines) == [("error", "service.controls", None), ("configured", "service.controls", None)]


def test_a_level_for_a_time_takes_itself_back(open_worker: OpenWorker, lines: Lines) -> None:
    """Also when everything was silenced, that line included; and the one that was for longer stays."""
    with open_worker() as worker:
        worker.control("log_level", level="error", target="actor", for_s=3600)
        entries = worker.control("log_level", level="off", target="service", for_s=0.05)["targets"]
        assert 0 < entries[2]["left_s"] <= 0.05
        worker.until(lambda: len(_said(lines)) == 3)
        (entry,) = [one for one in worker.control("log_level")["targets"] if one["left_s"] is not None]
        assert (entry["target"], entry["level"]) == ("actor", "error")
        assert 3590 < entry["left_s"] <= 3600
        worker.control("log_level", level="configured")
    assert _said(lines) == [
        ("error", "actor", 3600),
        ("off", "service", 0.05),
        ("configured", "service", None),
        ("configured", "actor", None),
    ]


def test_every_change_is_on_record(open_worker: OpenWorker, lines: Lines) -> None:
    """Also the same one again within a minute, as by somebody who silences a worker for what he does."""
    with open_worker() as worker:
        for level in ("off", "configured", "off", "configured"):
            worker.control("log_level", level=level, target="service")
    assert [level for level, _, _ in _said(lines)] == ["off", "configured", "off", "configured"]


def test_two_workers_of_a_process_have_one_log(
    open_worker: OpenWorker, lines: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    """What both changed is written once, and one takes back for both."""
    log = get_logger("actor.request")
    with open_worker() as one, open_worker() as other:
        for worker in (one, other):
            worker.control("log_level", level="debug", target="actor")
        log.debug("seen.now")
        log.info("passed.on")
        assert one.control("log_level", level="configured")["targets"] == AS_CONFIGURED
        assert other.control("log_level")["targets"] == AS_CONFIGURED
        log.debug("unseen.later")
        log.info("passed.on")
    assert len(lines.named("passed.on")) == 2
    on_stderr = capsys.readouterr().err
    assert on_stderr.count("seen.now") == 1
    assert "unseen.later" not in on_stderr


def test_a_later_word_counts_for_its_target(open_worker: OpenWorker, lines: Lines) -> None:
    """One without a time stays when the time of the one before it is over."""
    with open_worker() as worker:
        worker.control("log_level", level="debug", for_s=0.05)
        worker.control("log_level", level="warn", target="actor")
        worker.until(lambda: len(_said(lines)) == 3)
        assert _levels(worker) == {"actor": "warn", "actors": "info", "service": "info"}
        worker.control("log_level", level="configured")
    assert _said(lines)[2] == ("configured", "actors,service", None)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"level": "loud"}, "level"),
        ({"level": 10}, "level"),
        ({"level": ["debug"]}, "level"),
        ({"level": "debug", "target": "torch"}, "target"),
        ({"level": "debug", "target": ""}, "target"),
        ({"level": "debug", "target": ["actor"]}, "target"),
        ({"level": "debug", "for_s": 0}, "for_s"),
        ({"level": "debug", "for_s": -1}, "for_s"),
        ({"level": "debug", "for_s": 86_401}, "for_s"),
        ({"level": "debug", "for_s": float("nan")}, "for_s"),
        ({"level": "debug", "for_s": True}, "for_s"),
        ({"level": "debug", "for_s": "60"}, "for_s"),
        ({"level": "configured", "for_s": 60}, "for_s"),
        ({"for_s": 60}, "for_s"),
        ({"level": "debug", "for": 60}, "key"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(
    open_worker: OpenWorker, lines: Lines, body: dict[str, Any], field: str
) -> None:
    """And nothing has changed."""
    with open_worker() as worker:
        with pytest.raises(InvalidArgument, match=f"^{field}:"):
            worker.control("log_level", **body)
        assert worker.control("log_level") == {"state": "starting", "targets": AS_CONFIGURED}
    assert _said(lines) == []


def test_it_changes_shows_and_takes_back(
    open_worker: OpenWorker, lines: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    """What holds, what was configured, and for how long it does."""
    with open_worker() as worker, system_server(worker) as url:
        assert log_level_command(["debug", "--for", "600", "--target", "service", "--url", url]) == 0
        assert capsys.readouterr().out.splitlines() == [
            "actor: info",
            "actors: info",
            "service: debug (configured: info), taken back in 600 s",
        ]
        assert log_level_command(["off", "--url", url]) == 0
        assert capsys.readouterr().out.splitlines()[2] == "service: off (configured: info)"
        assert log_level_command(["configured", "--url", url]) == 0
        assert log_level_command(["--json", "--url", url]) == 0
        told = capsys.readouterr().out.partition("{")
        assert json.loads(told[1] + told[2])["targets"][0]["level"] == "info"
    assert len(lines.named("log.level")) == 3


@pytest.mark.parametrize(("word", "meant"), [("DEBUG", "debug"), ("Warning", "warn"), ("OFF", "off")])
def test_a_level_may_be_written_as_elsewhere(
    open_worker: OpenWorker, lines: Lines, capsys: pytest.CaptureFixture[str], word: str, meant: str
) -> None:
    """In any case, and Python's word for a warning, in the body and in the shell."""
    with open_worker() as worker, system_server(worker) as url:
        assert set(_levels(worker, level=word).values()) == {meant}
        assert log_level_command(["CONFIGURED", "--url", url]) == 0
        assert log_level_command([word, "--url", url]) == 0
        assert capsys.readouterr().out.splitlines()[-3] == f"actor: {meant} (configured: info)"
        worker.control("log_level", level="Configured")
    assert {level for level, _, _ in _said(lines)} == {meant, "configured"}


def test_with_a_file_of_filters_it_says_where_to_look(
    open_worker: OpenWorker, lines: Lines, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the framework has read it."""
    monkeypatch.setenv("DYN_LOGGING_CONFIG_PATH", __file__)
    with open_worker() as worker, system_server(worker) as url:
        assert log_level_command(["--url", url]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "actor: as DYN_LOGGING_CONFIG_PATH says"


def test_what_the_worker_refuses_is_told(
    open_worker: OpenWorker, lines: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the field's name."""
    with open_worker() as worker, system_server(worker) as url:
        assert log_level_command(["debug", "--target", "torch", "--url", url]) == 1
    assert "target: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["loud"], ["debug", "--for", "0"], ["debug", "--for", "nan"], ["--nonsense"]]
)
def test_what_no_worker_takes_is_refused_at_once(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and nobody is asked."""
    with pytest.raises(SystemExit) as ended:
        log_level_command([*words, "--url", NOBODY])
    assert ended.value.code == 2
    assert words[-1] in capsys.readouterr().err


_ENTRY = {"target": "service", "level": "info", "configured": "info", "left_s": None}


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ({"state": "serving"}, "targets"),
        ({"state": "s", "targets": [{**_ENTRY, "left_s": "z"}]}, "left_s"),
        ({"state": "s", "targets": [{**_ENTRY, "level": 10}]}, "level"),
        ({"state": "s", "targets": {"service": "info"}}, "targets"),
    ],
)
@pytest.mark.parametrize("words", [[], ["--json"]], ids=["words", "json"])
def test_an_answer_of_another_shape_is_one_line(
    words: list[str], answer: dict[str, Any], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the field that is wrong; exit code 1."""
    with answering(lambda _name, _body: (200, json.dumps(answer).encode())) as url:
        assert log_level_command(["--url", url, *words]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert f"the worker at {url} answers what is not understood here" in line
    assert named in line


def test_nobody_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 69, as of every command."""
    assert log_level_command(["--url", NOBODY]) == 69
    assert NOBODY in capsys.readouterr().err
