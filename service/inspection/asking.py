"""Several workers asked at once, and asked again for the lives that one of them did not know of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct, structs

from service.control_client import ControlFailed, call_route, shaped
from service.exit_codes import ExitCode
from service.inspection.allowance import Allowance, AllowanceSpent
from service.inspection.at_once import at_once
from service.inspection.journeys import Journey, Life, journeys_of
from service.inspection.story import Answer, Worker
from service.telemetry.stories import Kept

# Each call waits for somebody else; a fleet is asked in a few turns.
_AT_ONCE = 16
# In the second round each worker is asked for each request that may have been moved. At 16 at once, and at
# 10 ms a call, this is a second.
_MOST_AGAIN = 1024
# Read in both rounds: the longest answers of 300 workers. As objects they take several times as much.
_MOST_BYTES = 64 << 20

# Of whom, and the body without the token.
Call = tuple[str, Mapping[str, Any]]


class Question(Struct, frozen=True):
    """An id, or which of the requests that a worker keeps; at most ``limit`` of them."""

    wanted: str | None
    which: Kept
    limit: int

    @property
    def body(self) -> dict[str, Any]:
        """As the route takes it."""
        asked = {"which": self.which.value} if self.wanted is None else {"id": self.wanted}
        return {**asked, "limit": self.limit}


class Asked(Struct, frozen=True):
    """One worker, and why it told nothing if it did not."""

    worker: Worker
    trouble: str | None = None
    code: ExitCode = ExitCode.PLANNED


class Heard(Struct, frozen=True):
    """What was asked, of whom, and the requests in the order in which they were asked for.

    unasked: requests that may have other lives, for which not every worker was asked, or did answer.
    """

    question: Question
    asked: tuple[Asked, ...]
    journeys: tuple[Journey, ...]
    unasked: int = 0


def hear(urls: Sequence[str], question: Question, token: Mapping[str, Any]) -> Heard:
    """Ask all of them. A worker that does not answer is named, and the others are heard.

    A request that was moved is known to two workers, of which one may not have been asked for it by the
    first question: it is among the slowest there, and among the last here.
    """
    ask = partial(_answers, token=token, allowance=Allowance(_MOST_BYTES))
    answers = ask([(url, question.body) for url in urls])
    talkers = [answer.worker.url for answer in answers if isinstance(answer, Answer)]
    journeys = _most_wanted(journeys_of(_lives_in(answers)), question)
    unasked = 0
    if len(talkers) > 1 and (contexts := _incomplete(journeys)):
        again, unasked = _ask_again(ask, talkers, contexts)
        wanted = {life.key for journey in journeys for life in journey.lives}
        joined = journeys_of((*_lives_in(answers), *_lives_in(again)))
        journeys = [each for each in joined if any(life.key in wanted for life in each.lives)]
    asked = tuple(_asked(answer) for answer in answers)
    return Heard(question, asked, tuple(_most_wanted(journeys, question)), unasked)


def _ask_again(
    ask: Callable[[list[Call]], list[Answer | Asked]], talkers: Sequence[str], contexts: Sequence[str]
) -> tuple[list[Answer | Asked], int]:
    """What they tell of these, and of how many not all was asked, or answered."""
    chosen = contexts[: max(_MOST_AGAIN // len(talkers), 1)]
    pairs = [(url, context_id) for context_id in chosen for url in talkers]
    answers = ask([(url, {"id": context_id}) for url, context_id in pairs])
    silent = {pair[1] for pair, answer in zip(pairs, answers, strict=True) if isinstance(answer, Asked)}
    return answers, len(contexts) - len(chosen) + len(silent)


def _incomplete(journeys: Iterable[Journey]) -> list[str]:
    """Context ids, those that are wanted most first."""
    return list(dict.fromkeys(each.first.story.context_id for each in journeys if each.is_incomplete))


def _answers(calls: Iterable[Call], token: Mapping[str, Any], allowance: Allowance) -> list[Answer | Asked]:
    return at_once([partial(_answer, url, {**body, **token}, allowance) for url, body in calls], _AT_ONCE)


def _answer(url: str, body: Mapping[str, Any], allowance: Allowance) -> Answer | Asked:
    try:
        told = call_route(url, "trace", body, on_piece=allowance.take)
        answer = shaped(url, told, Answer)
    except ControlFailed as exc:
        return Asked(Worker(url), str(exc), exc.code)
    except AllowanceSpent as exc:
        trouble = f"what the worker at {url} answers is left out: {exc}"
        return Asked(Worker(url), trouble, ExitCode.UNEXPECTED)
    return structs.replace(answer, worker=structs.replace(answer.worker, url=url))


def _asked(answer: Answer | Asked) -> Asked:
    return Asked(answer.worker) if isinstance(answer, Answer) else answer


def _lives_in(answers: Iterable[Answer | Asked]) -> Iterable[Life]:
    return (
        Life(answer.worker, story)
        for answer in answers
        if isinstance(answer, Answer)
        for story in answer.stories
    )


def _most_wanted(journeys: Iterable[Journey], question: Question) -> list[Journey]:
    """Of all workers together no more than were asked for, in the order in which one worker tells them."""
    is_slowest = question.wanted is None and question.which is Kept.SLOWEST
    value: Callable[[Journey], Any] = _slowness if is_slowest else _newness
    return sorted(journeys, key=value, reverse=True)[: question.limit]


def _slowness(journey: Journey) -> Any:
    return journey.duration_ms, journey.first.order


def _newness(journey: Journey) -> Any:
    return journey.last.ended_at, journey.first.order
