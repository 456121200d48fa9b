"""``trace`` from a shell: real HTTP to the routes of real facades, and to those who only look like them."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import convert, to_builtins
from msgspec.json import encode as to_json

from protocols.telemetry import Outcome
from service.inspection.command import trace_command
from service.inspection.story import Story
from service.telemetry.figures import figures_of
from service.telemetry.recorder import RecorderSettings, build_recorder
from service.telemetry.stories import story_as_dict
from tests.service.inspection.fleet import HOSTILE, continued, life, moved
from tests.service.routes import answering, system_server
from tests.service.telemetry.tales import SAMPLED, TRACE_ID, tale

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from protocols.telemetry import RequestStory
    from tests.service.conftest import OpenWorker

    OpenTeller = Callable[..., AbstractContextManager[str]]


@pytest.fixture
def open_teller(open_worker: OpenWorker) -> OpenTeller:
    """Workers that keep these stories, by their addresses."""

    @contextmanager
    def open_one(name: str, *stories: RequestStory, **arrangement: Any) -> Iterator[str]:
        recorder = build_recorder(
            RecorderSettings(
                engine="synthetic", framework_version="0", version="0", environ={}, instance_id=name
            )
        )
        for story in stories:
            recorder.stories.request_ended(story, figures_of(story))
        with (
            open_worker(recorder=recorder, **arrangement) as worker,
            system_server(worker.open()) as url,
        ):
            yield url

    return open_one


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def _headlines(out: str) -> list[str]:
    return [line for line in out.splitlines() if line.startswith("request ") and " of worker" not in line]


def _numbers(out: str) -> list[int]:
    return [int(line.split()[1]) for line in _headlines(out)]


def test_the_last_ones_are_shown_first(open_teller: OpenTeller, capsys: pytest.CaptureFixture[str]):
    """As many as a terminal has room for, or as were asked for."""
    with open_teller("one", *(tale(engine_id=number) for number in range(1, 8))) as url:
        assert trace_command(["--url", url]) == 0
        assert _numbers(capsys.readouterr().out) == [7, 6, 5, 4]
        assert trace_command(["--last", "--limit", "2", "--url", url]) == 0
        assert _numbers(capsys.readouterr().out) == [7, 6]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (["--slowest"], [2, 3, 1, 4]),
        (["--failed"], [3]),
        (["2"], [2]),
        (["ctx-7"], [4, 3, 2, 1]),
        (["chatcmpl-ctx-7", "--limit", "2"], [4, 3]),
        (["gateway-1"], [2]),
        ([TRACE_ID], [1]),
    ],
)
def test_what_can_be_asked_for(
    open_teller: OpenTeller, capsys: pytest.CaptureFixture[str], asked: list[str], expected: list[int]
):
    """The slowest, the failed, or one by the engine's id, or the context's, trace's, answer's or caller's."""
    told = (
        tale(engine_id=1, trace_headers=SAMPLED),
        tale(engine_id=2, arrived_s=90.0, ended_s=103.0, trace_headers={"x-request-id": "gateway-1"}),
        tale(Outcome.FAILED, engine_id=3, arrived_s=95.0, ended_s=104.0),
        tale(engine_id=4, arrived_s=104.0, ended_s=105.0),
    )
    with open_teller("one", *told) as url:
        assert trace_command([*asked, "--url", url]) == 0
    assert _numbers(capsys.readouterr().out) == expected


def test_an_id_that_nobody_keeps_ends_with_1(open_teller: OpenTeller, capsys: pytest.CaptureFixture[str]):
    """A script that asks for one can tell; a person is told which id that was, and what is one."""
    with open_teller("one", tale()) as url:
        assert trace_command(["lost\x1b[2J", "--url", url]) == 1
        said = capsys.readouterr().out
        assert said.startswith("no request with the id lost\\x1b[2J is kept; an id is the id of its answer")
        assert "x-request-id" in said
        assert trace_command(["--failed", "--url", url]) == 0
        assert capsys.readouterr().out.startswith("no such request is kept: none failed")


def test_a_worker_without_any_story_is_in_order(open_teller: OpenTeller, capsys: pytest.CaptureFixture[str]):
    """It is not the id's fault then."""
    with open_teller("one") as url:
        for words, code in (([], 0), (["--failed"], 0), (["--slowest"], 0), (["lost"], 1)):
            assert trace_command([*words, "--url", url]) == code
            assert capsys.readouterr().out == "no request has ended yet\n"


@pytest.mark.parametrize("word", ["last", "slowest", "failed"])
def test_a_word_that_is_an_option_is_hinted_at(
    open_teller: OpenTeller, capsys: pytest.CaptureFixture[str], word: str
):
    """It is looked for as an id, which somebody may have chosen; most people meant the option."""
    with open_teller("one", tale()) as url, open_teller("two", tale(context_id=word)) as chosen:
        assert trace_command([word, "--url", url]) == 1
        assert f"--{word} shows" in capsys.readouterr().out
        assert trace_command([word, "--url", chosen]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--last", "--failed"], "--failed: not allowed with argument --last"),
        (["7", "--slowest"], "not allowed with argument"),
        (["--json", "--html", "x"], "not allowed with argument"),
        (["--slow"], "unrecognized arguments"),
        (["--limit", "0"], "--limit: '0' is not allowed: a number from 1 to 64"),
        (["--limit", "65"], "--limit: '65' is not allowed"),
        (["--limit", "many"], "--limit: 'many' is not allowed"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    """With exit code 2, before anybody is called."""
    with pytest.raises(SystemExit) as ended:
        trace_command([*words, "--url", "http://127.0.0.1:9"])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_the_lives_of_a_moved_request_are_joined(open_teller: OpenTeller, capsys: pytest.CaptureFixture[str]):
    """Also when the first one is far behind others on its worker: it is asked for by its context."""
    later = (tale(engine_id=50 + number, ended_s=110.0 + number) for number in range(20))
    second = continued(arrived_s=102.75, **_shifted(102.75), ended_s=200.0)
    with open_teller("one", moved(), *later) as one, open_teller("two", second) as two:
        assert trace_command(["--limit", "1", "--url", one, "--url", two]) == 0
        forth = capsys.readouterr().out
        assert trace_command(["--limit", "1", "--url", two, "--url", one]) == 0
        back = capsys.readouterr().out
    assert _headlines(forth) == _headlines(back)
    assert re.fullmatch(r"request 40  completed \(length\)  \d+\.\d{3} s in 2 lives", _headlines(forth)[0])
    addresses = [url.removeprefix("http://") for url in (one, two)]
    assert re.findall(r" of worker (\S+)", forth) == addresses
    (gap,) = [line for line in forth.splitlines() if line.startswith("gap")]
    assert 249 < float(gap.split()[-2]) < 251


def _shifted(arrived_s: float) -> dict[str, float]:
    offsets = {"admitted_s": 0.0625, "resolved_s": 0.125, "submitted_s": 0.25, "first_token_s": 0.5}
    return {name: arrived_s + offset for name, offset in offsets.items()}


def test_a_worker_that_does_not_answer_is_named(
    open_teller: OpenTeller, nobody: str, capsys: pytest.CaptureFixture[str]
):
    """The others are shown, and the exit code says that it is not all."""
    with open_teller("one", tale()) as url:
        assert trace_command(["--url", nobody, "--url", url]) == 69
    captured = capsys.readouterr()
    assert captured.err.startswith(f"dynamo-actor-worker: no worker answers at {nobody}: ")
    assert len(captured.err.splitlines()) == 1
    assert _numbers(captured.out) == [7]


def test_a_worker_that_did_not_answer_is_not_asked_again(open_teller: OpenTeller):
    """Each of its silences would be waited for."""
    calls: list[str] = []

    def refuse(name: str, _body: dict[str, Any]) -> tuple[int, bytes]:
        calls.append(name)
        return 500, b"no"

    with (
        open_teller("one", moved()) as one,
        open_teller("two", continued()) as two,
        answering(refuse) as silent,
    ):
        assert trace_command(["--url", one, "--url", silent, "--url", two]) == 1
    assert calls == ["trace"]


def test_when_nobody_answers_nothing_is_shown(nobody: str, capsys: pytest.CaptureFixture[str]):
    """Not even that nothing is kept: that is not known."""
    assert trace_command(["--url", nobody]) == 69
    assert capsys.readouterr().out == ""


def test_a_worker_that_refuses_is_named(open_teller: OpenTeller, capsys: pytest.CaptureFixture[str]):
    """Its token is another one than the shell's."""
    with open_teller("one", tale(), control_token="right") as url:
        assert trace_command(["--url", url], {"DYN_ACTOR_CONTROL_TOKEN": "wrong"}) == 1
        captured = capsys.readouterr()
        assert f"the worker at {url} refused" in captured.err
        assert captured.out == ""
        assert trace_command(["--url", url], {"DYN_ACTOR_CONTROL_TOKEN": "right"}) == 0


def test_nothing_that_a_worker_tells_is_lost():
    """The command knows every key of a story, at every depth."""
    told = story_as_dict(moved(predecessor=continued().predecessor))
    assert json.loads(to_json(convert(told, Story)))["hops"] == [
        {"waiting_ms": None, "prefill_ms": None, **hop} for hop in told["hops"]
    ]
    assert {*to_builtins(convert(told, Story))} == {*told}


def _story(**changes: Any) -> dict[str, Any]:
    """As a worker writes it, but for the changes."""
    told = life(tale())
    return {**to_builtins(told.story), **changes}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"duration_ms": "long"}, "duration_ms"),
        ({"duration_ms": -1}, "duration_ms"),
        ({"hops": [{"name": "actor.intake"}]}, "hops[0]"),
        ({"arrived_at": "9999-12-31T23:59:59Z"}, "arrived_at"),
        ({"arrived_at": "2026-11-30T00:00:00"}, "arrived_at"),
        ({"marks": [[0, 1]] * 600}, "marks"),
    ],
)
def test_stories_that_make_no_sense_are_refused_by_name(
    changes: dict[str, Any], named: str, capsys: pytest.CaptureFixture[str]
):
    """Nothing is drawn from what is no time, and no traceback is shown."""
    told = json.dumps({"worker": {}, "stories": [_story(**changes)]}).encode()
    with answering(lambda _name, _body: (200, told)) as url:
        assert trace_command(["--url", url]) == 1
    captured = capsys.readouterr()
    assert f"the worker at {url} answers what is not understood here" in captured.err
    assert named in captured.err


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (200, {"worker": {"instance_id": HOSTILE}, "stories": [HOSTILE]}),
        (200, {"status": "error", "message": HOSTILE}),
        (500, {"message": HOSTILE}),
        (200, HOSTILE),
    ],
)
def test_no_control_character_reaches_the_terminal(
    status: int, told: Any, capsys: pytest.CaptureFixture[str]
):
    """Whoever answers at that address, and whatever he says."""
    written = json.dumps(told, ensure_ascii=False).replace("\\u001b", "\x1b").encode()
    with answering(lambda _name, _body: (status, written)) as url:
        assert trace_command(["--url", url]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("dynamo-actor-worker: ")
    assert captured.err.rstrip("\n").isprintable()


def test_a_hostile_story_is_drawn_harmlessly(capsys: pytest.CaptureFixture[str]):
    """Every text of it, on the way to a terminal."""
    texts = ("context_id", "outcome", "phase", "finish_reason", "cancel_reason", "error", "error_kind")
    told = {"worker": {"model": HOSTILE}, "stories": [_story(**dict.fromkeys(texts, HOSTILE))]}
    with answering(lambda _name, _body: (200, json.dumps(told).encode())) as url:
        assert trace_command(["--url", url]) == 0
    out = capsys.readouterr().out
    assert "alert(1)" in out
    assert all(line.isprintable() for line in out.splitlines())


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_the_terminal_decides_how_wide_it_is_and_what_it_can_write(encoding: str):
    """The console script itself, in a narrow terminal that may know no blocks."""
    told = json.dumps({"worker": {"model": "größer"}, "stories": [_story()]}).encode()
    with answering(lambda _name, _body: (200, told)) as url:
        ran = subprocess.run(
            [sys.executable, "-m", "service", "trace", "--url", url],
            env={"PATH": os.environ["PATH"], "PYTHONIOENCODING": encoding, "COLUMNS": "56"},
            capture_output=True,
            check=True,
        )
    lines = ran.stdout.decode(encoding).splitlines()
    assert max(map(len, lines)) == 56
    assert [line[10:].strip("·.█# ") for line in lines if line.startswith("intake")] == ["62.500 ms"]
    assert ("█" in ran.stdout.decode(encoding)) is (encoding == "utf-8")


def test_everything_that_was_told_as_json(
    open_teller: OpenTeller, nobody: str, capsys: pytest.CaptureFixture[str]
):
    """Requests with their lives, and who was asked: the same as the page is made from."""
    with open_teller("one", moved(), tale(ended_s=103.0)) as url:
        assert trace_command(["--json", "--url", url, "--url", nobody]) == 69
    told = json.loads(capsys.readouterr().out)
    assert told["asked"] == {"which": "last", "limit": 64}
    assert [worker["instance_id"] for worker in told["workers"]] == ["one", None]
    assert told["workers"][1]["trouble"].startswith("no worker answers")
    assert [request["context_id"] for request in told["requests"]] == ["ctx-7", "moved"]
    (only,) = told["requests"][1]["lives"]
    assert (only["worker"], only["is_moved"], only["gap_ms"]) == (0, True, None)
    assert len(only["marks"]) == 9


def test_a_page_is_written_whole_or_not_at_all(
    open_teller: OpenTeller, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """In the place of the one before it; where it cannot be written the command says so."""
    file = tmp_path / "trace.html"
    file.write_text("the one before", encoding="utf-8")
    with open_teller("one", tale()) as url:
        assert trace_command(["--html", str(file), "--url", url]) == 0
        assert capsys.readouterr().out == f"1 request in {file}\n"
        assert file.read_text(encoding="utf-8").startswith("<!doctype html>")
        assert trace_command(["lost", "--html", str(file), "--url", url]) == 1
        said = capsys.readouterr().out.splitlines()
        assert said[0] == f"0 requests in {file}"
        assert said[1].startswith("no request with the id lost is kept")
        assert trace_command(["--html", str(tmp_path / "nowhere" / "x"), "--url", url]) == 2
        assert "nowhere" in capsys.readouterr().err
        assert trace_command(["--html", str(tmp_path), "--url", url]) == 2
        assert trace_command(["--html", os.devnull, "--url", url]) == 2
    assert list(tmp_path.iterdir()) == [file]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_worker_of_this_machine_is_asked_by_default(
    open_teller: OpenTeller, capsys: pytest.CaptureFixture[str]
):
    """The port is the framework's own setting."""
    with open_teller("one", tale()) as url:
        assert trace_command([], {"DYN_SYSTEM_PORT": url.rpartition(":")[2]}) == 0
    assert _numbers(capsys.readouterr().out) == [7]
