"""Several workers asked at once, and asked again for the lives that one of them did not know of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec import Struct, ValidationError, convert, structs

from service.control_client import ControlFailed, call_route
from service.exit_codes import ExitCode
from service.inspection.journeys import Journey, Life, journeys_of
from service.inspection.story import Answer, Worker
from service.telemetry.stories import Kept

# Each call waits for somebody else; a fleet is asked in a few turns.
_AT_ONCE = 16


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
    """What was asked, of whom, and the requests in the order in which they were asked for."""

    question: Question
    asked: tuple[Asked, ...]
    journeys: tuple[Journey, ...]


def hear(urls: Sequence[str], question: Question, token: Mapping[str, Any]) -> Heard:
    """Ask all of them. A worker that does not answer is named, and the others are heard.

    A request that was moved is known to two workers, of which one may not have been asked for it by the
    first question: it is among the slowest there, and among the last here.
    """
    with ThreadPoolExecutor(min(len(urls), _AT_ONCE)) as threads:

        def answers_to(whom: Iterable[str], *bodies: Mapping[str, Any]) -> list[Answer | Asked]:
            calls = [(url, {**body, **token}) for body in bodies for url in whom]
            return list(threads.map(_answer, *zip(*calls, strict=True)))

        answers = answers_to(urls, question.body)
        talkers = [answer.worker.url for answer in answers if isinstance(answer, Answer)]
        journeys = _most_wanted(journeys_of(_lives_in(answers)), question)
        contexts = {journey.first.story.context_id for journey in journeys if journey.is_incomplete}
        if contexts and len(talkers) > 1:
            again = answers_to(talkers, *({"id": context_id} for context_id in sorted(contexts)))
            wanted = {life.key for journey in journeys for life in journey.lives}
            joined = journeys_of((*_lives_in(answers), *_lives_in(again)))
            journeys = [each for each in joined if any(life.key in wanted for life in each.lives)]
    asked = tuple(_asked(answer) for answer in answers)
    return Heard(question, asked, tuple(_most_wanted(journeys, question)))


def _answer(url: str, body: Mapping[str, Any]) -> Answer | Asked:
    try:
        answer = convert(call_route(url, "trace", body), Answer)
    except ControlFailed as exc:
        return Asked(Worker(url), str(exc), exc.code)
    except ValidationError as exc:
        trouble = f"the worker at {url} tells stories that are not understood here: {exc}"
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
