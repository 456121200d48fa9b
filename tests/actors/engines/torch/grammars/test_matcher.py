"""How a sequence follows its grammar: masks, the end, errors, and what that may cost."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch

from actors.engines.foreign.steering_failed import SteeringFailed
from actors.engines.grammars.vocabulary import read_vocabulary
from actors.engines.torch.grammars.budget import Budget
from actors.engines.torch.grammars.matcher import GrammarState
from tests.actors.engines.grammars.world import END, STOP, Guide, write_tokenizer
from tests.actors.engines.torch.tiny_models import VOCAB_SIZE

if TYPE_CHECKING:
    from pathlib import Path


class HostileMatcher:
    """Does what llguidance does when it gives up, or worse: allows all tokens and takes its time."""

    def __init__(self, reason: str = "NotStopped", *, takes_s: float = 0.0) -> None:
        self._reason = reason
        self._takes_s = takes_s

    def unsafe_compute_mask_ptr(self, address: int, size: int) -> None:
        ctypes.memset(address, 0xFF, size)
        self._work()

    def note(self, matcher: Any, token: int, library: Any, budget: Budget) -> None:
        with budget.spending():
            self._work()

    def is_error(self) -> bool:
        return self._reason != "NotStopped"

    def is_stopped(self) -> bool:
        return self.is_error()

    def stop_reason(self) -> str:
        return self._reason

    def get_error(self) -> str:
        return "secret: the caller's own words"

    def _work(self) -> None:
        until = time.thread_time() + self._takes_s
        while time.thread_time() < until:
            pass


def hostile(guide: Guide, *args: Any, **options: Any) -> GrammarState:
    matcher = HostileMatcher(*args, **options)
    return GrammarState(matcher, guide.vocabulary, VOCAB_SIZE, matcher.note)


def test_complete_at_once(guide: Guide) -> None:
    """The grammar is complete with the token behind which nothing may follow, not one later."""
    state = guide.compile("choice", ["ab"]).new_state()
    first, second = guide.ids("ab")
    assert guide.allowed(state) == {first}
    assert not state.accept(first)
    assert guide.allowed(state) == {second}
    assert state.accept(second)


def test_an_end_token_is_complete(guide: Guide) -> None:
    """Where the answer may end, the end token ends it."""
    state = guide.compile("regex", "a*").new_state()
    assert guide.vocabulary.special[END] in guide.allowed(state)
    assert state.accept(guide.vocabulary.special[END])


def test_no_token_beyond_the_tokenizer(guide: Guide) -> None:
    """Logits that belong to no token are forbidden, whatever the grammar says."""
    assert guide.vocabulary.tokens < VOCAB_SIZE
    assert guide.allowed(hostile(guide)) == set(range(guide.vocabulary.tokens))


def test_a_tokenizer_with_more_tokens_than_logits(guide: Guide) -> None:
    """Tokens that the model has no logits for cannot come; the rest is followed as ever."""
    grammar = guide.compile("regex", "[a-z]")
    row = torch.zeros(100)
    state = GrammarState(grammar.new_state()._matcher, guide.vocabulary, 100)
    state.fill_mask()
    state.apply_mask(row)
    expected = {token for token in guide.allowed(grammar.new_state()) if token < 100}
    assert set(torch.nonzero(row == 0).flatten().tolist()) == expected
    assert expected


def test_the_mask_only_forbids(guide: Guide) -> None:
    """What is allowed keeps its logit to the bit."""
    state = guide.compile("regex", "[a-c]").new_state()
    before = torch.randn(VOCAB_SIZE)
    row = before.clone()
    state.fill_mask()
    state.apply_mask(row)
    allowed = torch.isfinite(row)
    assert set(torch.nonzero(allowed).flatten().tolist()) == set(guide.ids("abc"))
    assert torch.equal(row[allowed], before[allowed])


def test_states_do_not_touch_each_other(guide: Guide) -> None:
    """Two sequences that follow one grammar go ways of their own, on threads of their own."""
    grammar = guide.compile("regex", "a{5}b|c")
    states = [grammar.new_state() for _ in range(4)]
    found: list[set[int]] = []

    def go() -> None:
        state = states.pop()
        for token in guide.ids("aaa"):
            guide.allowed(state)
            state.accept(token)
        found.append(guide.allowed(state))

    threads = [threading.Thread(target=go) for _ in states[1:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [set(guide.ids("a"))] * 3
    assert guide.allowed(states[0]) == set(guide.ids("ac"))


@pytest.mark.parametrize("reason", ["ParserTooComplex", "LexerTooComplex", "InternalError", "SomethingNew"])
def test_an_error_is_no_end(guide: Guide, reason: str) -> None:
    """A matcher that gave up fails the request, with a text that has nothing of the caller in it."""
    with pytest.raises(SteeringFailed, match=r"^the grammar (became|could not)") as failed:
        hostile(guide, reason).fill_mask()
    assert "secret" not in str(failed.value)
    with pytest.raises(SteeringFailed):
        hostile(guide, reason).accept(1)


def test_a_token_that_does_not_fit_is_an_error(guide: Guide) -> None:
    """A token that the mask did not let through is never taken for the end."""
    state = guide.compile("choice", ["ab"]).new_state()
    with pytest.raises(SteeringFailed):
        state.accept(guide.ids("b")[0])


def test_no_mask_is_used_twice(guide: Guide) -> None:
    """After a token the mask before it is gone: applying it again is an error."""
    state = guide.compile("regex", "ab*").new_state()
    guide.allowed(state)
    state.accept(guide.ids("a")[0])
    with pytest.raises(SteeringFailed):
        state.apply_mask(torch.zeros(VOCAB_SIZE))


def test_costly_tokens_fail_the_request(guide: Guide) -> None:
    """A grammar that costs the engine's thread much for each token is given up after a few of them."""
    state = hostile(guide, takes_s=0.01)
    for _ in range(3):
        assert not state.accept(1)
    with pytest.raises(SteeringFailed, match="too costly"):
        state.accept(1)


def test_costly_masks_fail_the_request(guide: Guide) -> None:
    """A grammar whose masks take long, one after the other, is given up."""
    state = hostile(guide, takes_s=0.1)
    for _ in range(5):
        state.fill_mask()
    with pytest.raises(SteeringFailed, match="too costly"):
        state.fill_mask()


def test_a_budget_grows_with_the_tokens() -> None:
    """What costs no more than its share goes on for ever."""
    budget = Budget(burst_s=0.002, token_s=0.001)
    for _ in range(50):
        with budget.spending():
            pass


def test_waiting_costs_nothing() -> None:
    """Time in which a thread did not compute is not held against the grammar."""
    budget = Budget(burst_s=0.005, token_s=0.0)
    with budget.spending():
        threading.Event().wait(0.05)


def test_all_end_tokens_of_the_model_end_an_answer(tmp_path: Path) -> None:
    """The tokenizer's end token and those of both configuration files, as numbers or lists."""
    folder = write_tokenizer(tmp_path / "model")
    plain = read_vocabulary(folder, VOCAB_SIZE)
    (folder / "config.json").write_text(f'{{"eos_token_id": {plain.special[STOP]}}}')
    (folder / "generation_config.json").write_text('{"eos_token_id": [3, 99999, null]}')
    vocabulary = read_vocabulary(folder, VOCAB_SIZE)
    assert set(vocabulary.ends) == {plain.special[END], plain.special[STOP], 3}
    guide = Guide(vocabulary)
    assert guide.allowed(guide.compile("regex", "(zz)?").new_state()) >= set(vocabulary.ends)
