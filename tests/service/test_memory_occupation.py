"""Upstream's two routes about memory: its bodies, its words, and what is refused that it overlooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dynamo.llm.exceptions import EngineShutdown, InvalidArgument

from tests.doubles.callers import wire_request
from tests.doubles.maintenance import Fate, SleepyEngine
from tests.service.test_maintenance import check_serving, memory_of
from tests.service.worker import synthetic

if TYPE_CHECKING:
    from tests.service.conftest import OpenWorker

RELEASE, RESUME = "release_memory_occupation", "resume_memory_occupation"
EVERYTHING = ["draft_model_weights", "kv_cache", "model_weights"]


def ok(message: str) -> dict[str, str]:
    return {"status": "ok", "message": message}


def test_release_and_resume_in_upstreams_words(open_worker: OpenWorker) -> None:
    """Each may be asked twice; without tags, everything."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        assert worker.control(RESUME) == ok("Memory already resumed")
        assert worker.control(RELEASE) == ok("Memory released")
        assert memory_of(worker) == ("asleep", EVERYTHING)
        assert worker.control(RELEASE) == ok("Memory already released")
        assert worker.control(RESUME) == ok("Memory resumed")
        # The framework itself leaves before a release.
        assert worker.events == ["register"]
        check_serving(worker, engine)


@pytest.mark.parametrize(
    ("tags", "asleep"),
    [
        (None, EVERYTHING),
        ([], EVERYTHING),
        (["kv_cache"], ["kv_cache"]),
        (["weights"], ["draft_model_weights", "model_weights"]),
        (["weights", "kv_cache"], EVERYTHING),
        (["model"], ["model"]),
    ],
)
def test_tags_are_upstreams_words_or_the_engines(
    open_worker: OpenWorker, tags: list[str] | None, asleep: list[str]
) -> None:
    """`weights` are those of both models."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        assert worker.control(RELEASE, tags=tags, timeout_s=1) == ok("Memory released")
        assert memory_of(worker) == ("asleep", asleep)
        assert worker.control(RESUME, tags=tags or None) == ok("Memory resumed")


def test_more_tags_may_follow(open_worker: OpenWorker) -> None:
    """What is not released yet is; upstream would say that it is already."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        worker.control(RELEASE, tags=["kv_cache"])
        assert worker.control(RELEASE, tags=["weights"]) == ok("Memory released")
        assert engine.maintenance.gone == set(EVERYTHING)


def test_a_resume_of_less_than_what_is_asleep_is_refused(open_worker: OpenWorker) -> None:
    """The worker would be listed without its weights. One of more is as good as one of all."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        worker.control(RELEASE)
        answer = worker.control(RESUME, tags=["kv_cache"])
        assert answer["status"] == "error"
        assert answer["message"].endswith("draft_model_weights, model_weights among them")
        assert memory_of(worker) == ("asleep", EVERYTHING)
        assert worker.control(RESUME, tags=["kv_cache", "weights", "model"]) == ok("Memory resumed")
        check_serving(worker, engine)


@pytest.mark.parametrize(
    ("name", "body", "named"),
    [
        (RELEASE, {"tags": ["kvcache"]}, "'kvcache'"),
        (RELEASE, {"tags": "kv_cache"}, "tags"),
        (RELEASE, {"tags": [5]}, "tags"),
        (RELEASE, {"timeout_s": "bad"}, "timeout_s"),
        (RELEASE, {"memories": ["kv_cache"]}, "memories"),
        (RESUME, {"tags": ["weight"]}, "the nearest is weights"),
        (RESUME, {"timeout_s": 5}, "timeout_s"),
    ],
)
def test_a_body_that_is_not_understood_is_an_error_and_changes_nothing(
    open_worker: OpenWorker, name: str, body: dict[str, Any], named: str
) -> None:
    """Told with HTTP 200, as upstream tells it."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        answer = worker.control(name, **body)
        assert answer["status"] == "error"
        assert named in answer["message"]
        assert worker.events == (["register"] if name == RELEASE else [])
        check_serving(worker, engine)


@pytest.mark.parametrize("fate", [Fate.FAILS, Fate.HALF, Fate.RAISES, Fate.CANCELLED])
def test_a_release_that_fails_is_taken_back_at_once(open_worker: OpenWorker, fate: Fate) -> None:
    """The worker serves on, as upstream's does."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        engine.maintenance.fates = [fate]
        answer = worker.control(RELEASE)
        assert (answer["status"], answer["message"].partition(":")[0]) == ("error", "sleep")
        assert engine.maintenance.calls == ["sleep", "wake"]
        check_serving(worker, engine)


def test_a_release_that_cannot_be_taken_back_says_both(open_worker: OpenWorker) -> None:
    """Another release is refused until a resume has brought everything back, whatever it names."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        engine.maintenance.fate = Fate.FAILS
        answer = worker.control(RELEASE)
        assert answer == {"status": "error", "message": "sleep: no; rollback resume failed: wake: no"}
        assert memory_of(worker) == ("half_asleep", EVERYTHING)
        again = worker.control(RELEASE)
        assert again["message"] == "resume_memory_occupation required before retrying release"
        assert worker.control(RESUME)["message"] == "wake: no"
        engine.maintenance.fate = Fate.WORKS
        assert worker.control(RESUME, tags=["kv_cache"]) == ok("Memory resumed")
        check_serving(worker, engine)


def test_who_is_still_live_when_the_time_is_over_is_interrupted(open_worker: OpenWorker) -> None:
    """So that a frontend can go on elsewhere; upstream gives up and stays awake."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        call = worker.ask(wire_request())
        worker.until(lambda: engine.live)
        releasing = worker.loop.begin(worker.facade.engine_control(RELEASE, {"timeout_s": 0}))
        assert isinstance(call.read_to_end().error, EngineShutdown)
        assert releasing.result(10) == ok("Memory released")


@pytest.mark.parametrize("name", [RELEASE, RESUME])
def test_another_engine_refuses_by_its_name(open_worker: OpenWorker, name: str) -> None:
    """In upstream's form too."""
    with open_worker(synthetic()) as worker:
        worker.open()
        answer = worker.control(name)
        assert answer["status"] == "error"
        assert "engine synthetic" in answer["message"]
        assert worker.control("status")["state"] == "serving"


def test_who_may_not_call_gets_no_answer_in_upstreams_form(open_worker: OpenWorker) -> None:
    """A secret that is wrong is an error for everybody to see."""
    with open_worker(SleepyEngine(), control_token="a long secret") as worker:
        worker.open()
        with pytest.raises(InvalidArgument, match="token"):
            worker.control(RELEASE)
        assert worker.control(RELEASE, token="a long secret")["status"] == "ok"


@pytest.mark.parametrize("is_before", [True, False])
def test_a_resume_of_a_worker_drained_by_hand_is_no_success(open_worker: OpenWorker, is_before: bool) -> None:
    """The framework would list it, and its door is shut; the memory is there all the same."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        if is_before:
            worker.control("drain")
        worker.control(RELEASE)
        worker.control("drain")
        for message in ("Memory resumed", "Memory already resumed"):
            answer = worker.control(RESUME)
            assert answer["status"] == "error"
            assert answer["message"].startswith(f"{message}, but the worker was drained by hand")
        assert memory_of(worker) == ("awake", [])
        worker.control("resume")
        assert worker.control(RESUME) == ok("Memory already resumed")
        check_serving(worker, engine)


def test_a_release_by_who_may_not_leaves_the_worker_listed(open_worker: OpenWorker) -> None:
    """The framework has taken it out before anybody could look at the token."""
    with open_worker(SleepyEngine(), control_token="a long secret") as worker:
        worker.open()
        with pytest.raises(InvalidArgument, match="token"):
            worker.control(RELEASE)
        assert worker.events == ["register"]
        assert worker.control("status")["in_discovery"] is True
