"""What TensorRT-LLM repeats is told once: every token, every end, and one last word."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.vetting import Transcript
from protocols.spec import Output as Asked
from protocols.spec import Search, Stage, StopRules
from protocols.steps import Candidate, FinishReason
from tests.actors.engines.trtllm.scripted import ME, Output, Result, followed, heard, refuse, spec, told

VOCABULARY = 100


@dataclass
class Logprob:
    """As the library has it."""

    logprob: float
    rank: int | None = None


class TestOneChoice:
    def test_tokens_that_come_with_the_end_are_told(self) -> None:
        """Three, the same three again, and five with the end: three and two, none twice and none lost."""
        deltas = heard(
            followed(spec(max_tokens=5)),
            Result([Output([5, 6, 7])]),
            Result([Output([5, 6, 7])]),
            Result([Output([5, 6, 7, 8, 9], "length")], finished=True),
        )
        assert [(delta.token_ids, delta.finish_reason, delta.is_last) for delta in deltas] == [
            ([5, 6, 7], None, False),
            ([8, 9], FinishReason.LENGTH, True),
        ]

    def test_an_answer_that_is_complete_at_once(self) -> None:
        """One delta has all of it."""
        (delta,) = heard(followed(spec()), Result([Output([5], "length")], finished=True))
        assert (delta.token_ids, delta.finish_reason, delta.is_last) == ([5], FinishReason.LENGTH, True)

    def test_an_end_without_an_answer_is_an_error(self) -> None:
        """A stream never just ends."""
        (delta,) = heard(followed(spec()), Result([], finished=True))
        assert delta.is_last
        assert delta.error is not None

    def test_an_error_that_looks_like_success(self) -> None:
        """What the library notes beside the answer counts, whatever the answer says."""
        result = Result([Output([5], "stop")], finished=True, error="a fault")
        deltas = heard(followed(spec()), result)
        assert deltas[-1].is_last
        assert deltas[-1].error is not None
        assert told(deltas) == {0: [5]}

    @pytest.mark.parametrize("reason", ["timeout", "not_finished", None, "unheard_of"])
    def test_an_end_that_is_none_fails_the_request(self, reason: str | None) -> None:
        """The engine's own time-out is nothing that a caller asked for."""
        deltas = heard(followed(spec()), Result([Output([5], reason)], finished=True))
        assert deltas[-1].error is not None
        assert deltas[-1].is_last

    def test_ids_that_get_fewer_are_not_taken_back(self) -> None:
        """At a stop word the list may get shorter than what was told."""
        deltas = heard(
            followed(spec()),
            Result([Output([5, 6, 7])]),
            Result([Output([5, 6], "stop", stop_reason=7)], finished=True),
        )
        assert told(deltas) == {0: [5, 6, 7]}
        assert (deltas[-1].finish_reason, deltas[-1].stop_reason) == (FinishReason.STOP, 7)

    @pytest.mark.parametrize(("found", "reason"), [(None, "eos"), (2, "eos"), (9, "stop"), ("text", "stop")])
    def test_what_ended_it(self, found: Any, reason: str) -> None:
        """The engine names every id but its own end id; an end of every answer is no stop of the caller's."""
        stop = StopRules(max_tokens=8, eos_token_ids=frozenset({1, 2}), stop_token_ids=frozenset({9}))
        (delta,) = heard(
            followed(spec(stop=stop)), Result([Output([5], "stop", stop_reason=found)], finished=True)
        )
        assert delta.finish_reason is not None
        assert delta.finish_reason.value == reason
        assert delta.stop_reason == (None if reason == "eos" else found)

    @pytest.mark.parametrize(("last", "reason"), [(1, "eos"), (9, "stop"), (5, "length")])
    def test_an_end_at_the_last_token_that_was_asked_for(self, last: int, reason: str) -> None:
        """Some releases look at the length first; the caller's reason is the id."""
        stop = StopRules(max_tokens=2, eos_token_ids=frozenset({1}), stop_token_ids=frozenset({9}))
        (delta,) = heard(followed(spec(stop=stop)), Result([Output([5, last], "length")], finished=True))
        assert delta.finish_reason is not None
        assert (delta.finish_reason.value, delta.stop_reason) == (reason, 9 if last == 9 else None)

    def test_nothing_follows_the_last_word(self) -> None:
        """However often the library shows it again."""
        request = followed(spec())
        end = Result([Output([5], "stop")], finished=True)
        assert len(heard(request, end, end, Result([Output([5, 6, 7])]))) == 1
        assert request.fail("late") == []

    def test_cached_tokens_are_told_once_and_never_above_the_prompt(self) -> None:
        """With the first tokens."""
        deltas = heard(
            followed(spec(prompt=(1, 2, 3))),
            Result([Output([5])], cached_tokens=64),
            Result([Output([5, 6], "length")], finished=True, cached_tokens=64),
        )
        assert [delta.cached_tokens for delta in deltas] == [3, 0]


class TestPromptLogprobs:
    ASKED = Asked(prompt_logprobs=0)

    @pytest.mark.parametrize(("entries", "cached_tokens"), [(3, 2), (1, 2), (1, 0), (0, 0)])
    def test_those_of_a_prompt_that_was_reused_are_told_by_nobody(
        self, entries: int, cached_tokens: int
    ) -> None:
        """They belong to other tokens: the engine is let go, and the request fails when it has ended."""
        request = followed(spec(output=self.ASKED))
        output = Output([5], prompt_logprobs=[{2: Logprob(-0.5)}] * entries)
        assert heard(request, Result([output], cached_tokens=cached_tokens)) == []
        assert request.is_enough
        assert not request.is_over
        assert heard(request, Result([replace(output, token_ids=[5, 6])], cached_tokens=cached_tokens)) == []
        end = replace(output, token_ids=[5, 6], finish_reason="cancelled")
        (last,) = heard(request, Result([end], finished=True, cached_tokens=cached_tokens))
        assert last.error == "the engine tells logprobs of a part of the prompt only"
        assert (last.is_last, last.token_ids, last.prompt_positions) == (True, [], None)

    @pytest.mark.parametrize("entries", [2, 3])
    def test_those_of_a_prompt_that_was_computed_are_told_once(self, entries: int) -> None:
        """Every response has them again. The one behind the prompt, if there is one, is of the answer."""
        output = Output([5], prompt_logprobs=[{2: Logprob(-0.5)}, {3: Logprob(-1.0)}, {5: Logprob(-2.0)}])
        del output.prompt_logprobs[entries:]
        end = replace(output, token_ids=[5, 6], finish_reason="length")
        deltas = heard(followed(spec(output=self.ASKED)), Result([output]), Result([end], finished=True))
        told = [None, [Candidate(2, -0.5, 1)], [Candidate(3, -1.0, 1)]]
        assert [delta.prompt_positions for delta in deltas] == [told, None]

    def test_samples_may_reuse_what_one_of_them_computed(self) -> None:
        """Its entries count, whichever of them is the best; with a prompt of two tokens nobody could tell."""
        asked = spec(n=2, search=Search(width=3), output=self.ASKED)
        whole = Output([8], "length", prompt_logprobs=[{2: Logprob(-0.5)}, {3: Logprob(-1.0)}])
        part = Output([9], "length", prompt_logprobs=[{2: Logprob(-3.0)}])
        first, *_ = heard(followed(asked), Result([part, whole], finished=True, cached_tokens=2))
        assert first.prompt_positions == [None, [Candidate(2, -0.5, 1)], [Candidate(3, -1.0, 1)]]
        short = spec(prompt=(1, 2), n=2, search=Search(width=3), output=self.ASKED)
        (last,) = heard(followed(short), Result([part, part], finished=True, cached_tokens=1))
        assert last.error is not None


class TestLateStops:
    """Ids that the engine was not told of, since it would not wait for ``min_tokens``."""

    STOP = StopRules(max_tokens=20, min_tokens=3, eos_token_ids=frozenset({1}), stop_token_ids=frozenset({7}))

    def test_the_first_tokens_are_not_cut(self) -> None:
        """The id counts from the first token on that may end the answer."""
        request = followed(spec(stop=self.STOP))
        deltas = heard(request, Result([Output([7, 5, 7])]), Result([Output([7, 5, 7, 7, 5, 5])]))
        assert told(deltas) == {0: [7, 5, 7, 7]}
        assert request.is_enough
        assert not request.is_over

    def test_the_end_is_told_when_the_engine_has_let_go(self) -> None:
        """Not before: its slot is taken until then; and with the caller's reason, not with the abort's."""
        request = followed(spec(stop=self.STOP))
        early = heard(request, Result([Output([5, 5, 5, 7, 5])]))
        assert all(delta.finish_reason is None for delta in early)
        (last,) = heard(request, Result([Output([5, 5, 5, 7, 5, 5], "cancelled")], finished=True))
        assert (last.finish_reason, last.stop_reason, last.is_last) == (FinishReason.STOP, 7, True)
        assert last.token_ids == []


class TestSeveralChoices:
    def test_each_has_its_own_tokens_and_end(self) -> None:
        """In any order, both in one result too; choices that have ended stay ended."""
        request = followed(spec(n=2, max_tokens=6))
        deltas = heard(
            request,
            Result([Output([10]), Output([])]),
            Result([Output([10, 11]), Output([20, 21], "stop")]),
            Result([Output([10, 11, 12, 13, 14]), Output([20, 21, 22], "stop")]),
            Result([Output([10, 11, 12, 13, 14, 15], "length"), Output([20, 21], "stop")], finished=True),
        )
        assert told(deltas) == {0: [10, 11, 12, 13, 14, 15], 1: [20, 21]}
        assert [(delta.index, delta.finish_reason) for delta in deltas if delta.finish_reason] == [
            (1, FinishReason.EOS),
            (0, FinishReason.LENGTH),
        ]
        assert [delta.is_last for delta in deltas].count(True) == 1

    def test_a_cancel_ends_only_what_is_open(self) -> None:
        """The other keeps its reason."""
        deltas = heard(
            followed(spec(n=2)),
            Result([Output([10]), Output([20], "stop")]),
            Result([Output([10], "cancelled"), Output([20], "stop")], finished=True),
        )
        assert [(delta.index, delta.finish_reason) for delta in deltas if delta.finish_reason] == [
            (1, FinishReason.EOS),
            (0, FinishReason.CANCELLED),
        ]

    def test_an_end_that_was_told_before_the_engine_had_finished(self) -> None:
        """All choices have ended, and the request has not: its last word comes with the last response."""
        request = followed(spec(n=2))
        early = heard(request, Result([Output([10], "length"), Output([20], "length")]))
        assert [delta.is_last for delta in early] == [False, False]
        (last,) = heard(request, Result([Output([10], "length"), Output([20], "length")], finished=True))
        assert (last.finish_reason, last.is_last) == (FinishReason.LENGTH, True)

    def test_the_best_of_more_are_told_at_the_end(self) -> None:
        """What is ranked anew with every token says nothing before."""
        request = followed(spec(n=2, search=Search(width=3)))
        assert heard(request, Result([Output([10, 11]), Output([20])])) == []
        deltas = heard(
            request, Result([Output([30, 31], "length"), Output([10, 11], "length")], finished=True)
        )
        assert told(deltas) == {0: [30, 31], 1: [10, 11]}


class TestPrefill:
    @pytest.mark.parametrize("reason", ["not_finished", "length", "stop", None])
    def test_it_hands_over_and_never_stops(self, reason: str | None) -> None:
        """A frontend that hears "stop" takes the first token for the answer."""
        output = Output([5], reason, disaggregated_params={"first_gen_tokens": [5]})
        (delta,) = heard(followed(spec(stage=Stage.PREFILL)), Result([output], finished=True))
        assert (delta.finish_reason, delta.is_last) == (FinishReason.LENGTH, True)
        assert delta.handoff == {"first_gen_tokens": [5]}

    def test_without_a_hand_off_it_has_failed(self) -> None:
        """A decode worker could do nothing with it."""
        deltas = heard(
            followed(spec(stage=Stage.PREFILL)), Result([Output([5], "not_finished")], finished=True)
        )
        assert deltas[-1].error is not None

    def test_one_that_the_engine_gave_up_hands_nothing_over(self) -> None:
        """Its time-out has passed: whoever fetched the cache would wait for nothing."""
        output = Output([5], "timeout", disaggregated_params={"first_gen_tokens": [5]})
        deltas = heard(followed(spec(stage=Stage.PREFILL)), Result([output], finished=True))
        assert deltas[-1].error is not None
        assert all(delta.handoff is None for delta in deltas)

    def test_a_hand_off_that_cannot_be_sent_fails_the_request(self) -> None:
        """And only it."""
        output = Output([5], "not_finished", disaggregated_params=object())
        request = followed(spec(stage=Stage.PREFILL), refuse)
        assert heard(request, Result([output], finished=True))[-1].error is not None

    def test_a_cancelled_one_hands_nothing_over(self) -> None:
        """The engine has nothing that anybody could read."""
        (delta,) = heard(
            followed(spec(stage=Stage.PREFILL)), Result([Output([], "cancelled")], finished=True)
        )
        assert (delta.finish_reason, delta.handoff) == (FinishReason.CANCELLED, None)


REASONS = st.sampled_from(["stop", "length", "cancelled", "timeout", "not_finished", None])
TOKENS = st.lists(st.integers(0, VOCABULARY - 1), max_size=6)


@given(data=st.data(), n=st.integers(1, 3))
def test_whatever_it_shows_no_promise_is_broken(data: st.DataObject, n: int) -> None:
    """Any cumulative states, ends and errors: every token once, one last delta, nothing impossible."""
    asked = spec(n=n, max_tokens=6)
    whole = [data.draw(TOKENS) for _ in range(n)]
    request, transcript = followed(asked), Transcript(asked, VOCABULARY)
    shown = [0] * n
    deltas = []
    for _ in range(data.draw(st.integers(0, 6))):
        index = data.draw(st.integers(0, n - 1))
        shown[index] = data.draw(st.integers(shown[index], len(whole[index])))
        deltas += request.hear(Result([Output(whole[i][: shown[i]]) for i in range(n)]))
    error = data.draw(st.sampled_from([None, "broken"]))
    last = [Output(whole[i], data.draw(REASONS)) for i in range(n)]
    deltas += request.hear(Result(last, finished=True, error=error))
    assert [delta.is_last for delta in deltas].count(True) == 1
    assert deltas[-1].is_last
    assert told(deltas) == {
        **{delta.index: [] for delta in deltas},
        **{i: ids for i, ids in enumerate(whole) if ids},
    }
    for delta in deltas:
        assert delta.engine_id == ME
        assert transcript.flaw_of(delta) is None


@pytest.mark.parametrize("failure", [None, "its processor failed"])
def test_what_the_engine_dropped_ends_as_what_it_is(failure: str | None) -> None:
    """Cancelled, or with why it was ended; once, whatever comes afterwards."""
    request = followed(spec())
    request.failure = failure
    (last,) = request.drop()
    assert last.is_last
    assert (last.error, last.finish_reason) == (failure, None if failure else FinishReason.CANCELLED)
    assert request.drop() == heard(request, Result([Output([5], "stop")], finished=True)) == []
