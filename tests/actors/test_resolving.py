"""Promises of the rules: each field at, inside and outside its edges; a sound spec, or refused by name."""

from __future__ import annotations

import math
from typing import Any

import pytest

from actors.resolving import SpecRules
from protocols.engine import EngineCapabilities
from protocols.errors import InvalidRequest
from protocols.requests import decode_request
from protocols.spec import Guided, GuidedKind
from tests.actors.judges import (
    ALL_SAMPLING,
    CONTEXT,
    EVERYTHING,
    LARGEST_SEED,
    NOTHING,
    VOCAB,
    resolve,
    rules,
)
from tests.doubles.callers import PROMPT, wire_request


def refusal(judge: SpecRules | None = None, /, **options: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        resolve(judge, **options)
    assert str(caught.value).startswith(f"{caught.value.field}: ")
    assert str(caught.value).endswith(caught.value.allowed)
    return caught.value


class TestPrompt:
    @pytest.mark.parametrize("length", [1, CONTEXT - 1])
    def test_it_may_leave_room_for_one_token(self, length: int) -> None:
        """The edges of the range are inside it."""
        spec = resolve(prompt=[7] * length)
        assert spec.prompt == (7,) * length
        assert spec.stop.max_tokens == CONTEXT - length

    @pytest.mark.parametrize("length", [CONTEXT, 157])
    def test_too_long_is_the_callers_mistake_with_both_numbers(self, length: int) -> None:
        """Refused before the engine, never as a negative budget (S05)."""
        error = refusal(prompt=[7] * length)
        assert error.field == "token_ids"
        assert f"a prompt of {length} tokens" in str(error)
        assert f"context of {CONTEXT}" in str(error)

    def test_too_long_for_one_step_without_chunked_prefill(self) -> None:
        """The other limit has its own text (S05)."""
        judge = rules(max_prompt_tokens=23)
        assert len(resolve(judge, prompt=[7] * 23).prompt) == 23
        error = refusal(judge, prompt=[7] * 24)
        assert error.field == "token_ids"
        assert "24" in str(error)
        assert "23" in str(error)

    def test_an_empty_prompt_is_refused(self) -> None:
        """There is nothing to go on from."""
        assert refusal(prompt=[]).field == "token_ids"

    def test_an_id_outside_the_vocabulary_is_named_with_its_place(self) -> None:
        """The device never sees it."""
        assert resolve(prompt=[0, VOCAB - 1]).prompt == (0, VOCAB - 1)
        error = refusal(prompt=[1, VOCAB, 2])
        assert (error.field, error.value) == ("token_ids[1]", VOCAB)
        assert "0 to 99" in error.allowed

    def test_no_error_shows_a_prompt(self) -> None:
        """Lengths and one id at most."""
        assert "[" not in str(refusal(prompt=[7] * 500)).removeprefix("token_ids")


class TestMaxTokens:
    @pytest.mark.parametrize("options", [{}, {"max_tokens": None}])
    def test_missing_means_up_to_the_end_of_the_context(self, options: dict[str, Any]) -> None:
        """Not somebody's small default (S08)."""
        assert resolve(prompt=range(1, 11), **options).stop.max_tokens == 54

    def test_more_than_the_context_is_cut_to_it(self) -> None:
        """60 + 50 in a context of 64 is an answer of 4 (S05)."""
        assert resolve(prompt=[7] * 60, max_tokens=50).stop.max_tokens == 4

    @pytest.mark.parametrize("max_tokens", [1, 59, 60])
    def test_what_fits_is_obeyed(self, max_tokens: int) -> None:
        """Exactly."""
        assert resolve(max_tokens=max_tokens).stop.max_tokens == max_tokens


class TestStopping:
    @pytest.mark.parametrize(("asked", "got"), [(None, 0), (0, 0), (8, 8), (20, 20), (30, 20), (10**12, 20)])
    def test_min_tokens_is_clamped_to_max_tokens(self, asked: int | None, got: int) -> None:
        """A moved request arrives with the one reduced and the other not: not to be lost (S09 e)."""
        assert resolve(max_tokens=20, min_tokens=asked).stop.min_tokens == got

    def test_min_tokens_is_clamped_to_the_default_too(self) -> None:
        """Checked again after the default was filled in."""
        assert resolve(min_tokens=10**6).stop.min_tokens == CONTEXT - len(PROMPT)

    def test_min_tokens_where_every_id_ends_the_answer_is_refused(self) -> None:
        """There would be nothing to choose: the caller's mistake, and no fault of an engine later."""
        every = list(range(VOCAB))
        assert refusal(min_tokens=1, stop_token_ids=every).field == "stop_conditions.min_tokens"
        assert refusal(min_tokens=1, stop_token_ids=every[1:], eos_token_ids=[0]).field.endswith("min_tokens")
        assert resolve(min_tokens=0, stop_token_ids=every).stop.min_tokens == 0
        assert resolve(min_tokens=1, stop_token_ids=every[1:], eos_token_ids=[2]).stop.min_tokens == 1
        assert (
            resolve(
                min_tokens=1, stop_token_ids=every[1:], eos_token_ids=[0], ignore_eos=True
            ).stop.min_tokens
            == 1
        )

    def test_ignore_eos_leaves_no_end_of_sequence(self) -> None:
        """Neither the model's own ids nor the hidden ones end it (S09 a)."""
        stop = resolve(ignore_eos=True, eos_token_ids=[2], stop_token_ids_hidden=[3]).stop
        assert stop.eos_token_ids == frozenset()

    def test_ignore_eos_keeps_the_callers_own_stops(self) -> None:
        """What was asked for is not an end of sequence."""
        assert resolve(ignore_eos=True, stop_token_ids=[7]).stop.stop_token_ids == {7}

    def test_hidden_ids_are_ends_and_visible_ones_are_stops(self) -> None:
        """The reason on the wire depends on it: eos or stop."""
        stop = resolve(
            eos_token_ids=[2], stop_token_ids_hidden=[3], stop_token_ids=[7], stop_token_ids_visible=[8]
        ).stop
        assert stop.eos_token_ids == {2, 3}
        assert stop.stop_token_ids == {7, 8}

    def test_an_id_that_is_both_counts_as_asked_for(self) -> None:
        """The caller named it, so he is told it stopped him."""
        stop = resolve(eos_token_ids=[2], stop_token_ids=[2]).stop
        assert stop.eos_token_ids == frozenset()
        assert stop.stop_token_ids == {2}

    @pytest.mark.parametrize("field", ["stop_token_ids", "stop_token_ids_visible"])
    def test_a_stop_id_outside_the_vocabulary_is_refused_by_name(self, field: str) -> None:
        """It could never stop anything, and would point beyond the device's tables."""
        assert resolve(**{field: [VOCAB - 1]}).stop.stop_token_ids == {VOCAB - 1}
        error = refusal(**{field: [7, VOCAB]})
        assert (error.field, error.value) == (f"stop_conditions.{field}", VOCAB)

    def test_an_end_of_sequence_the_engine_cannot_say_never_reaches_it(self) -> None:
        """The model's description may know ids that its weights do not: those end nothing."""
        stop = resolve(eos_token_ids=[2, VOCAB], stop_token_ids_hidden=[3, 2**32 - 1]).stop
        assert stop.eos_token_ids == {2, 3}

    def test_a_thinking_budget_is_refused(self) -> None:
        """No engine here obeys one."""
        assert refusal(max_thinking_tokens=5).field == "stop_conditions.max_thinking_tokens"


class TestSampling:
    @pytest.mark.parametrize(
        ("field", "good"),
        [
            ("temperature", [0.0, -0.0, 1e-6, 0.7, 2.0, 100.0]),
            ("top_p", [1e-6, 0.5, 1.0, 1]),
            ("min_p", [0.0, 0.05, 1.0]),
            ("repetition_penalty", [0.01, 1.0, 1.2]),
            ("presence_penalty", [-2.0, 0.1, 2.0]),
            ("frequency_penalty", [-2.0, 0.1, 2.0]),
            ("top_k", [1, 50, VOCAB - 1]),
            ("seed", [0, 7, LARGEST_SEED]),
        ],
    )
    def test_what_is_inside_the_range_arrives_unchanged(self, field: str, good: list[float]) -> None:
        """Edges included (S06)."""
        for value in good:
            assert getattr(resolve(**{field: value}).sampling, field) == value

    @pytest.mark.parametrize(
        ("field", "bad"),
        [
            ("temperature", [-0.1, -1e-9, 1000.5, 1e39]),
            ("top_p", [0.0, -0.5, 1.5, 1.0000001]),
            ("min_p", [-0.01, 1.5]),
            ("repetition_penalty", [0.0, -1.0, 1e-45, 100.5, 1e39]),
            ("presence_penalty", [-2.01, 2.01]),
            ("frequency_penalty", [-2.01, 2.01]),
            ("top_k", [-2, -(10**6)]),
        ],
    )
    def test_what_is_outside_is_refused_with_field_value_and_range(
        self, field: str, bad: list[float]
    ) -> None:
        """Never clamped in silence, never a bare type error (S06)."""
        for value in bad:
            error = refusal(**{field: value})
            assert error.field == f"sampling_options.{field}"
            assert error.value == value
            assert any(character.isdigit() for character in error.allowed)

    @pytest.mark.parametrize(
        "field",
        ["temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"],
    )
    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_no_number_that_is_not_finite_passes(self, field: str, value: float) -> None:
        """Not even where the comparison with an edge would let it through."""
        assert refusal(**{field: value}).allowed == "a finite number"

    @pytest.mark.parametrize("value", [5e-324, 1e-46, 9e-7])
    def test_a_temperature_too_small_to_divide_by_is_greedy(self, value: float) -> None:
        """As a 32-bit float it is 0, and 0 / 0 is no probability."""
        assert resolve(temperature=value).sampling.is_greedy

    @pytest.mark.parametrize("value", [-1, 0, None, VOCAB, 10**30])
    def test_no_limit_has_one_form_at_the_engine(self, value: int | None) -> None:
        """-1, 0, nothing, and at least the whole vocabulary all mean 'no limit' (S06)."""
        assert resolve(top_k=value).sampling.top_k == 0

    def test_equal_seeds_give_equal_specs(self) -> None:
        """And different ones do not (S06)."""
        assert resolve(seed=7) == resolve(seed=7)
        assert resolve(seed=7) != resolve(seed=8)

    def test_requests_without_a_seed_do_not_share_one(self) -> None:
        """Two answers are not the same by accident."""
        judge = SpecRules("double", EVERYTHING, rules().info, 8)
        seeds = {resolve(judge).sampling.seed for _ in range(100)}
        assert len(seeds) == 100
        assert all(0 <= seed <= LARGEST_SEED for seed in seeds)

    @pytest.mark.parametrize("seed", [-1, 2**64, -(2**63), 10**30])
    def test_every_integer_is_a_seed(self, seed: int) -> None:
        """Folded into 64 bits; the same number always gives the same seed."""
        assert 0 <= resolve(seed=seed).sampling.seed <= LARGEST_SEED
        assert resolve(seed=seed) == resolve(seed=seed)

    @pytest.mark.parametrize(
        ("options", "temperature"),
        [({}, 0.0), ({"seed": 1}, 0.0), ({"top_k": 5}, 1.0), ({"top_p": 0.9}, 1.0), ({"min_p": 0.1}, 1.0),
         ({"temperature": 0.0, "top_k": -1}, 0.0)],
    )  # fmt: skip
    def test_greedy_unless_the_request_says_otherwise(
        self, options: dict[str, Any], temperature: float
    ) -> None:
        """Limits without a temperature want sampling at 1."""
        assert resolve(**options).sampling.temperature == temperature

    @pytest.mark.parametrize("field", sorted(ALL_SAMPLING))
    def test_an_option_the_engine_does_not_know_is_refused_unless_neutral(self, field: str) -> None:
        """It would be a silent lie."""
        judge = rules(NOTHING)
        neutral = getattr(resolve(judge, temperature=0.0).sampling, field)
        resolve(judge, **{"temperature": 0.0, field: neutral})
        error = refusal(judge, **{"temperature": 0.0, field: 0.5 if field != "top_k" else 5})
        assert error.field == f"sampling_options.{field}"
        assert "'double'" in error.allowed


class TestChoices:
    @pytest.mark.parametrize(("n", "got"), [(None, 1), (1, 1), (8, 8)])
    def test_inside(self, n: int | None, got: int) -> None:
        """One unless asked for more."""
        spec = resolve(n=n)
        assert spec.n == got
        assert spec.is_movable == (got == 1)

    @pytest.mark.parametrize("n", [0, -1, 9, 10**9])
    def test_outside(self, n: int) -> None:
        """The message says how many there may be."""
        error = refusal(n=n)
        assert (error.field, error.value) == ("sampling_options.n", n)
        assert "1 to 8" in error.allowed

    def test_never_more_than_the_capacity(self) -> None:
        """A request that could never be submitted is refused, not left waiting for ever."""
        assert resolve(rules(capacity=2), n=2).n == 2
        assert "1 to 2" in refusal(rules(capacity=2), n=3).allowed

    def test_best_of_must_be_n(self) -> None:
        """Nothing is generated and thrown away here."""
        assert resolve(n=2, best_of=2).n == 2
        assert refusal(n=2, best_of=3).field == "sampling_options.best_of"
        assert refusal(best_of=2).field == "sampling_options.best_of"


class TestOutput:
    @pytest.mark.parametrize("logprobs", [None, 0, 20])
    def test_logprobs_inside(self, logprobs: int | None) -> None:
        """0 means the chosen token's value only, None means none."""
        assert resolve(logprobs=logprobs).output.logprobs == logprobs

    @pytest.mark.parametrize("logprobs", [-1, 21])
    def test_logprobs_outside(self, logprobs: int) -> None:
        """The message says how many there may be."""
        error = refusal(logprobs=logprobs)
        assert (error.field, error.allowed) == ("output_options.logprobs", "0 to 20")

    def test_an_engine_without_logprobs_says_so(self) -> None:
        """Even for 0."""
        assert "not supported" in refusal(rules(NOTHING), logprobs=0).allowed
        assert "not supported" in refusal(rules(NOTHING), prompt_logprobs=0).allowed

    @pytest.mark.parametrize("prompt_logprobs", [-1, 21])
    def test_prompt_logprobs_have_the_same_edges(self, prompt_logprobs: int) -> None:
        """Both count alternatives per token."""
        assert resolve(prompt_logprobs=20).output.prompt_logprobs == 20
        assert refusal(prompt_logprobs=prompt_logprobs).field == "output_options.prompt_logprobs"


class TestRouting:
    @pytest.mark.parametrize("rank", [None, 0, 3])
    def test_a_rank_that_exists(self, rank: int | None) -> None:
        """'None' is not 0."""
        resolve(rules(data_parallel_size=4), routing={"dp_rank": rank})

    @pytest.mark.parametrize("rank", [-1, 4])
    def test_a_rank_that_does_not(self, rank: int) -> None:
        """Never replaced by 'any'."""
        error = refusal(rules(data_parallel_size=4), routing={"dp_rank": rank})
        assert (error.field, error.value) == ("routing.dp_rank", rank)

    def test_priority_and_salt_arrive(self) -> None:
        """Higher first; different salts share nothing."""
        spec = resolve(routing={"priority": -3.5, "cache_salt": "tenant"})
        assert (spec.priority, spec.cache_salt) == (-3.5, "tenant")

    @pytest.mark.parametrize("salt", ["\ud800", "x" * 1025, "é" * 513])
    def test_a_salt_that_no_hash_can_take_is_refused(self, salt: str) -> None:
        """Half a character, and more text than an id has."""
        assert refusal(routing={"cache_salt": salt}).field == "routing.cache_salt"

    @pytest.mark.parametrize("priority", [math.nan, math.inf])
    def test_a_priority_must_have_a_place_in_the_order(self, priority: float) -> None:
        """NaN would spoil the order of everybody."""
        assert refusal(routing={"priority": priority}).field == "routing.priority"


class TestUnsupported:
    @pytest.mark.parametrize(
        ("field", "options"),
        [
            ("multi_modal_data", {"multi_modal_data": {"image_url": []}}),
            ("multi_modal_uuids", {"multi_modal_uuids": {}}),
            ("mm_processor_kwargs", {"mm_processor_kwargs": {}}),
            ("prompt_embeds", {"prompt_embeds": "QUJD"}),
            ("encoder_result", {"encoder_result": {}}),
            ("bootstrap_info", {"bootstrap_info": {}}),
            ("routing.lora_name", {"routing": {"lora_name": "ad1"}}),
            ("sampling_options.use_beam_search", {"use_beam_search": True}),
            ("sampling_options.length_penalty", {"length_penalty": 1.0}),
            ("sampling_options.guided_decoding", {"guided_decoding": {"json": {"type": "object"}}}),
        ],
    )
    def test_what_no_engine_here_can_do_is_refused_by_name(self, field: str, options: dict[str, Any]) -> None:
        """Never dropped: an image that is ignored is a nonsense answer with success."""
        error = refusal(**options)
        assert error.field == field
        assert "'double'" in error.allowed

    def test_a_logits_processor_that_the_worker_does_not_have_is_refused(self) -> None:
        """By the annotation, and with the operator's option for it."""
        error = refusal(annotations=["logits-processor:mine"])
        assert (error.field, error.value) == ("annotations", "logits-processor:mine")
        assert "--logits-processor" in error.allowed

    @pytest.mark.parametrize(
        "options",
        [{"use_beam_search": False}, {"guided_decoding": {}}, {"annotations": ["other"]}, {"routing": {}}],
    )
    def test_what_asks_for_nothing_is_no_request_for_it(self, options: dict[str, Any]) -> None:
        """Off, empty and foreign are fine."""
        resolve(**options)

    def test_the_neutral_guided_keys_of_the_framework_ask_for_nothing(self) -> None:
        """A group that carries all its keys as None constrains nothing."""
        resolve(guided_decoding={"json": None, "regex": None})


class TestGuided:
    """A constraint, for engines that obey one."""

    RULES = rules(EngineCapabilities(guided=frozenset(GuidedKind)))

    @pytest.mark.parametrize(
        ("kind", "constraint"),
        [
            ("json", {"type": "object"}),
            ("regex", "[a-z]+"),
            ("choice", ["yes", "no"]),
            ("grammar", 'start: "a"'),
            ("structural_tag", {"type": "structural_tag"}),
        ],
    )
    def test_one_constraint_arrives_as_it_was_written(self, kind: str, constraint: object) -> None:
        """Its kind is named, its text untouched, and the request can no longer be moved."""
        spec = self.RULES.resolve(
            decode_request(wire_request(guided_decoding={kind: constraint, "other": None}))
        )
        assert spec.guided == Guided(kind=GuidedKind(kind), constraint=constraint)
        assert not spec.is_movable

    @pytest.mark.parametrize("guided", [{"json": {}, "regex": "a"}, {"jsno": {}}])
    def test_two_or_unknown_constraints_are_refused(self, guided: dict[str, Any]) -> None:
        """Never one of them, chosen in silence."""
        with pytest.raises(InvalidRequest) as refused:
            self.RULES.resolve(decode_request(wire_request(guided_decoding=guided)))
        assert refused.value.field == "sampling_options.guided_decoding"
        assert "exactly one of json, regex, choice, grammar, structural_tag" in refused.value.allowed
