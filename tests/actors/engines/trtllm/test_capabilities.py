"""What TensorRT-LLM lacks in a configuration is refused for the reason that is true there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from actors.engines.trtllm.capabilities import capabilities_of
from actors.engines.trtllm.config import TrtllmConfig
from actors.resolving import SpecRules
from protocols.engine import NEVER, EngineInfo
from protocols.errors import InvalidRequest
from protocols.requests import decode_request
from protocols.spec import Stage
from tests.doubles.callers import wire_request

INFO = EngineInfo(model="m", context_length=64, max_num_seqs=8, vocab_size=100)
HANDED = {"prefill_result": {"disaggregated_params": {"opaque": 1}}}
# What some configuration of this engine gives: the request, and a word of what gives it.
ASKED: dict[str, tuple[dict[str, Any], str]] = {
    "stop_conditions.max_thinking_tokens": (
        {"stop_conditions": {"max_tokens": 8, "max_thinking_tokens": 4}},
        "reasoning_parser",
    ),
    "sampling_options.guided_decoding": (
        {"sampling_options": {"guided_decoding": {"regex": "a"}}},
        "--guided-decoding-backend",
    ),
    "sampling_options.use_beam_search": (
        {"sampling_options": {"use_beam_search": True, "best_of": 2}},
        "--max-beam-width",
    ),
    "sampling_options.length_penalty": ({"sampling_options": {"length_penalty": 2.0}}, "--max-beam-width"),
    "sampling_options.n": ({"sampling_options": {"n": 2}}, "TLLM_ALLOW_N_GREEDY_DECODING"),
    "sampling_options.best_of": ({"sampling_options": {"best_of": 2}}, "TLLM_ALLOW_N_GREEDY_DECODING"),
    "routing.lora_name": ({"routing": {"lora_name": "mine"}}, "lora_config.lora_dir"),
    "annotations": ({"annotations": ["logits-processor:mine"]}, "--logits-processor"),
}
OF_TWO_WORKERS: dict[str, dict[str, Any]] = {
    "output_options.prompt_logprobs": {"output_options": {"prompt_logprobs": 0}},
    "sampling_options.use_beam_search": {"sampling_options": {"use_beam_search": True, "best_of": 2}},
    "sampling_options.length_penalty": {"sampling_options": {"length_penalty": 2.0}},
    "sampling_options.best_of": {"sampling_options": {"best_of": 2}},
    "sampling_options.n": {"sampling_options": {"n": 2}},
}


def judge(role: Stage = Stage.WHOLE, **arguments: Any) -> SpecRules:
    """Of a worker with this role and these arguments of the engine."""
    config = TrtllmConfig(
        model_path=Path("m"), vocab_size=100, context_length=64, role=role, arguments=arguments
    )
    return SpecRules("trtllm", capabilities_of(config), INFO, capacity=8)


def refusal(wire: dict[str, Any], role: Stage = Stage.WHOLE, **arguments: Any) -> InvalidRequest:
    """Of a worker with this role and these arguments of the engine."""
    handed = HANDED if role is Stage.DECODE else {}
    with pytest.raises(InvalidRequest) as caught:
        judge(role, **arguments).resolve(decode_request(wire_request(**wire, **handed)))
    return caught.value


@pytest.mark.parametrize("field", ASKED)
def test_what_some_option_gives_is_refused_with_its_name(field: str) -> None:
    """Never with words that say that the engine cannot."""
    wire, option = ASKED[field]
    error = refusal(wire)
    assert error.field == field
    assert option in error.allowed
    assert NEVER not in error.allowed


def test_drafts_and_logprobs_of_a_prompt_do_not_go_together() -> None:
    """The engine would fail on them; without drafts, and for those of the answer, it does not."""
    drafts = {"decoding_type": "MTP", "num_nextn_predict_layers": 1}
    error = refusal({"output_options": {"prompt_logprobs": 0}}, speculative_config=drafts)
    assert error.field == "output_options.prompt_logprobs"
    assert "speculative_config" in error.allowed
    judge().resolve(decode_request(wire_request(output_options={"prompt_logprobs": 0})))
    with_drafts = judge(speculative_config=drafts)
    with_drafts.resolve(decode_request(wire_request(output_options={"logprobs": 0})))


@pytest.mark.parametrize(("vocab_size", "longest"), [(32_000, 16_777), (128_256, 4_185), (262_144, 2_048)])
def test_logits_of_a_prompt_are_bounded_by_what_they_take_of_the_device(
    vocab_size: int, longest: int
) -> None:
    """A gibibyte of them in 16 bits, whatever the vocabulary."""
    config = TrtllmConfig(model_path=Path("m"), vocab_size=vocab_size, context_length=1 << 20)
    can = capabilities_of(config)
    assert can.prompt_logprob_tokens == longest
    assert can.prompt_logprob_entries == 4_194_304


@pytest.mark.parametrize("role", [Stage.PREFILL, Stage.DECODE])
@pytest.mark.parametrize("field", OF_TWO_WORKERS)
def test_what_two_workers_cannot_do_is_not_blamed_on_the_engine(role: Stage, field: str) -> None:
    """Nor on an option that would change nothing there."""
    error = refusal(OF_TWO_WORKERS[field], role, max_beam_width=4)
    assert error.field == field
    assert "two workers" in error.allowed or "handed over" in error.allowed
    assert "--max-beam-width" not in error.allowed


def test_a_reasoning_parser_without_a_tokenizer_is_told_apart() -> None:
    """Who has set the one need not look for it."""
    wire, _ = ASKED["stop_conditions.max_thinking_tokens"]
    error = refusal(wire, reasoning_parser="deepseek-r1", skip_tokenizer_init=True)
    assert "skip_tokenizer_init" in error.allowed
    assert "no reasoning parser" not in error.allowed


def test_a_prefill_takes_a_thinking_budget_that_only_its_decode_needs() -> None:
    """It makes one token, and no thought: the worker that goes on with the answer judges the budget."""
    wire, _ = ASKED["stop_conditions.max_thinking_tokens"]
    assert judge(Stage.PREFILL).resolve(decode_request(wire_request(**wire))).stage is Stage.PREFILL
    assert "no reasoning parser" in refusal(wire, Stage.DECODE).allowed


def test_a_form_that_only_the_other_back_end_follows_names_it() -> None:
    """Beside the forms that are followed; two at once are nobody's lack."""
    tag = {"structural_tag": {"type": "structural_tag", "format": {"type": "any_text"}}}
    error = refusal({"sampling_options": {"guided_decoding": tag}}, guided_decoding_backend="llguidance")
    assert "exactly one of json" in error.allowed
    assert "--guided-decoding-backend xgrammar" in error.allowed
    both = {"sampling_options": {"guided_decoding": {**tag, "regex": "a"}}}
    assert "xgrammar" not in refusal(both, guided_decoding_backend="llguidance").allowed


@pytest.mark.parametrize(("backend", "other"), [("xgrammar", "llguidance"), ("llguidance", "xgrammar")])
def test_the_back_end_that_a_request_names_is_the_operators(backend: str, other: str) -> None:
    """It may say so; the other one is refused by its name, with the one that is configured."""
    asked = {"sampling_options": {"guided_decoding": {"regex": "a", "backend": other}}}
    error = refusal(asked, guided_decoding_backend=backend)
    assert (error.field, error.value) == ("sampling_options.guided_decoding.backend", other)
    assert repr(backend) in error.allowed


@pytest.mark.parametrize(
    ("role", "why"), [(Stage.WHOLE, "is not a decode worker"), (Stage.PREFILL, "makes it")]
)
def test_a_hand_off_in_the_wrong_place_is_told_what_the_worker_is(role: Stage, why: str) -> None:
    """By the prefill worker's, and by the one that serves requests whole."""
    error = refusal(HANDED, role)
    assert error.field == "prefill_result"
    assert why in error.allowed
