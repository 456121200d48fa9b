"""What a request may ask for alone is refused by name where an engine cannot do both."""

from __future__ import annotations

from typing import Any

import pytest

from actors.together import check_together
from protocols.engine import EngineCapabilities
from protocols.errors import InvalidRequest
from protocols.spec import (
    GenerationSpec,
    Guided,
    GuidedKind,
    Output,
    ProcessorEntry,
    Sampling,
    Search,
    Stage,
    StopRules,
)

GUIDED = Guided(kind=GuidedKind.REGEX, constraint="[a-z]+")
CAN = EngineCapabilities(max_n=8, max_beams=4, max_best_of=4)
CANNOT = EngineCapabilities(no_greedy_choices="set THE_VARIABLE", holds_back_guided=False)


def spec(*, min_tokens: int = 0, **fields: Any) -> GenerationSpec:
    """A request of eight tokens."""
    return GenerationSpec(prompt=(1,), stop=StopRules(max_tokens=8, min_tokens=min_tokens), **fields)


def prompt(tokens: int, **fields: Any) -> GenerationSpec:
    """A request of eight tokens behind so many."""
    return GenerationSpec(prompt=(1,) * tokens, stop=StopRules(max_tokens=8), **fields)


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("sampling_options.n", spec(n=2)),
        ("sampling_options.best_of", spec(search=Search(width=2))),
        ("stop_conditions.min_tokens", spec(guided=GUIDED, min_tokens=2)),
    ],
)
def test_an_engine_that_cannot_says_why(field: str, asked: GenerationSpec) -> None:
    """And one that can takes it."""
    check_together(asked, CAN)
    with pytest.raises(InvalidRequest) as caught:
        check_together(asked, CANNOT)
    assert caught.value.field == field


def test_the_variable_that_would_help_is_named() -> None:
    """Not only that it is refused."""
    with pytest.raises(InvalidRequest, match="THE_VARIABLE"):
        check_together(spec(n=2), CANNOT)
    check_together(spec(n=2, sampling=Sampling(temperature=1.0)), CANNOT)
    check_together(spec(search=Search(width=2, is_beam=True)), CANNOT)


@pytest.mark.parametrize("options", [{"top_k": 1}, {"min_p": 1.0}])
def test_a_temperature_that_changes_nothing_does_not_help(options: dict[str, Any]) -> None:
    """One candidate is left, whatever noise is drawn; with less than all of it there are several."""
    hot = Sampling(temperature=1.0, **options)
    for asked in (spec(n=2, sampling=hot), spec(search=Search(width=2), sampling=hot)):
        check_together(asked, CAN)
        with pytest.raises(InvalidRequest, match="THE_VARIABLE"):
            check_together(asked, CANNOT)
    check_together(spec(n=2, sampling=Sampling(temperature=1.0, top_k=2, min_p=0.99)), CANNOT)


def test_one_token_at_least_goes_with_a_constraint() -> None:
    """Many clients say so, and no constraint has the empty answer only."""
    check_together(spec(guided=GUIDED, min_tokens=1), CANNOT)


class TestPromptLogprobs:
    FIELD = "output_options.prompt_logprobs"
    ASKED = Output(prompt_logprobs=0)

    def test_a_prompt_may_be_too_long_for_them(self) -> None:
        """Its length is told, and never its tokens; without them, and with another engine, it is served."""
        can = EngineCapabilities(max_n=8, prompt_logprob_tokens=4)
        check_together(prompt(4, output=self.ASKED), can)
        check_together(prompt(5, output=Output(logprobs=0)), can)
        check_together(prompt(5, output=self.ASKED), CAN)
        with pytest.raises(InvalidRequest, match=r"a prompt of 5 tokens is.*at most 4") as caught:
            check_together(prompt(5, output=self.ASKED), can)
        assert (caught.value.field, caught.value.value) == (self.FIELD, 5)

    def test_an_answer_may_be_too_long_beside_them(self) -> None:
        """Its most is told: each response has those of the whole prompt again."""
        can = EngineCapabilities(max_n=8, prompt_logprob_entries=40)
        check_together(prompt(5, output=self.ASKED), can)
        check_together(prompt(6, output=Output(logprobs=0)), can)
        check_together(prompt(6, output=self.ASKED), CAN)
        with pytest.raises(InvalidRequest, match=r"smaller.*at most 6") as caught:
            check_together(prompt(6, output=self.ASKED), can)
        assert (caught.value.field, caught.value.value) == ("stop_conditions.max_tokens", 8)

    def test_every_choice_has_an_answer(self) -> None:
        """The most is that of each; a prompt that leaves room for no token is refused for its length."""
        can = EngineCapabilities(max_n=8, prompt_logprob_entries=40)
        warm = Sampling(temperature=1.0)
        check_together(prompt(2, n=2, sampling=warm, output=self.ASKED), can)
        with pytest.raises(InvalidRequest, match="at most 6"):
            check_together(prompt(3, n=2, sampling=warm, output=self.ASKED), can)
        with pytest.raises(InvalidRequest, match=r"a prompt of 21 tokens.*at most 20") as caught:
            check_together(prompt(21, n=2, sampling=warm, output=self.ASKED), can)
        assert caught.value.field == self.FIELD


@pytest.mark.parametrize("stage", [Stage.PREFILL, Stage.DECODE])
def test_two_workers_give_one_answer(stage: Stage) -> None:
    """There is one first token."""
    check_together(spec(stage=stage), CAN)
    with pytest.raises(InvalidRequest):
        check_together(spec(stage=stage, n=2, sampling=Sampling(temperature=1.0)), CAN)


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("n", {"n": 2}),
        ("n", {"n": 2, "search": Search(width=3)}),
        ("best_of", {"search": Search(width=2)}),
        ("use_beam_search", {"search": Search(width=2, is_beam=True)}),
    ],
)
def test_the_option_that_asks_for_several_is_named(name: str, asked: dict[str, Any]) -> None:
    """Not ``n``, where that is 1."""
    with pytest.raises(InvalidRequest) as caught:
        check_together(spec(stage=Stage.DECODE, **asked), CAN)
    assert caught.value.field == f"sampling_options.{name}"


def test_beams_go_without_processors() -> None:
    """Those steer one sequence."""
    asked = spec(search=Search(width=2, is_beam=True), processors=(ProcessorEntry(name="one"),))
    with pytest.raises(InvalidRequest) as caught:
        check_together(asked, CAN)
    assert caught.value.field == "sampling_options.use_beam_search"
