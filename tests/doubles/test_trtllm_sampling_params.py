"""Promises of the double's sampling options: what is refused, and what a given value becomes."""

import importlib
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.trtllm_site import double_on_path

ALLOW = "TLLM_ALLOW_N_GREEDY_DECODING"


@pytest.fixture(scope="module")
def api() -> Iterator[ModuleType]:
    """The module of the options."""
    with double_on_path():
        yield importlib.import_module("tensorrt_llm.sampling_params")


@pytest.fixture(autouse=True)
def _nothing_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ALLOW, raising=False)


@pytest.mark.parametrize(
    "options",
    [
        {"n": 3, "best_of": 2, "temperature": 1.0},
        {"top_p": -0.1},
        {"top_p": 1.1},
        {"top_k": -1},
        {"temperature": -0.5},
        {"truncate_prompt_tokens": 0},
        {"logprobs": -1},
        {"prompt_logprobs": -1},
        {"logprobs_simple_format": True},
        {"logprobs_simple_format": True, "logprobs": 1},
        {"prompt_logprobs_simple_format": True, "prompt_logprobs": 2},
        {"logprobs_simple_format": True, "logprobs": 0, "use_beam_search": True},
        {"thinking_token_budget": -2},
        {"thinking_token_budget": True},
        {"thinking_token_budget": 1.0},
        {"logprobs_mode": "cooked"},
    ],
)
def test_a_wrong_value_is_refused_by_the_constructor(api: ModuleType, options: dict) -> None:
    """Each rule that both neighbouring revisions have is one here."""
    with pytest.raises(ValueError):  # noqa: PT011 - each rule has a text of its own
        api.SamplingParams(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"min_p": 1.5},
        {"top_p_decay": 0.0},
        {"top_p_min": 2.0},
        {"top_p_reset_ids": -1},
        {"logprobs": 101},
        {"max_tokens": 0},
        {"max_tokens": None},
        {"repetition_penalty": 0.0},
        {"prompt_ignore_length": 3},
    ],
)
def test_what_is_not_sure_for_the_release_is_accepted(api: ModuleType, options: dict) -> None:
    """A caller cannot count on the library to refuse these early."""
    api.SamplingParams(**options)


@pytest.mark.parametrize(
    "greedy", [{}, {"temperature": 0}, {"top_k": 1, "temperature": 1.0}, {"top_p": 0}, {"min_p": 1}]
)
def test_several_greedy_answers_are_refused(api: ModuleType, greedy: dict) -> None:
    """One answer is all that greedy decoding has; the error names the variable that lifts the rule."""
    with pytest.raises(ValueError, match=ALLOW):
        api.SamplingParams(n=2, **greedy)


@pytest.mark.parametrize("value", ["1", "0", "no"])
def test_any_text_in_the_variable_allows_several_greedy_answers(
    api: ModuleType, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """It is looked at when the options are made, and every text but the empty one counts."""
    monkeypatch.setenv(ALLOW, value)
    assert api.SamplingParams(n=2).best_of == 2
    monkeypatch.setenv(ALLOW, "")
    with pytest.raises(ValueError, match=ALLOW):
        api.SamplingParams(n=2)


@pytest.mark.parametrize(
    "options", [{"temperature": 0.7}, {"top_k": 5}, {"top_p": 0.9}, {"use_beam_search": True}]
)
def test_several_sampled_answers_are_allowed(api: ModuleType, options: dict) -> None:
    """Any knob of sampling, and beam search, make more than one answer possible."""
    assert api.SamplingParams(n=2, **options).best_of == 2


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        ({"logprobs": True}, "logprobs", 0),
        ({"logprobs": False}, "logprobs", None),
        ({"thinking_token_budget": -1}, "thinking_token_budget", None),
        ({"thinking_token_budget": 0}, "thinking_token_budget", 0),
        ({"end_id": 7}, "pad_id", 7),
        ({"n": 2, "temperature": 1}, "best_of", 2),
    ],
)
def test_a_value_gets_its_one_form(api: ModuleType, options: dict, name: str, value: object) -> None:
    """Switches become numbers, and what is left open follows from other fields."""
    assert getattr(api.SamplingParams(**options), name) == value


def test_a_mode_of_logprobs_becomes_the_member(api: ModuleType) -> None:
    """A plain string is as good as the enum."""
    assert api.SamplingParams(logprobs_mode="processed").logprobs_mode is api.LogprobMode.PROCESSED


@pytest.mark.parametrize("name", ["max_tokens", "seed", "temperature", "logprobs", "top_k", "end_id"])
def test_a_number_of_numpy_is_refused(api: ModuleType, name: str) -> None:
    """The compiled side would refuse it in another process, much later; here it is refused at once."""
    with pytest.raises(TypeError, match=name):
        api.SamplingParams(**{name: np.int64(1)})


def test_a_list_with_a_number_of_numpy_is_refused(api: ModuleType) -> None:
    """As single numbers, items of the lists of ids."""
    with pytest.raises(TypeError, match="stop_token_ids"):
        api.SamplingParams(stop_token_ids=[1, np.int32(2)])


def test_unknown_names_are_refused_in_both_ways(api: ModuleType) -> None:
    """Neither the constructor nor an assignment takes a name that there is not."""
    with pytest.raises(TypeError):
        api.SamplingParams(max_token=3)
    with pytest.raises(AttributeError):
        api.SamplingParams().max_token = 3
    with pytest.raises(TypeError):
        api.SamplingParams(7)


def test_a_later_assignment_is_not_looked_at(api: ModuleType) -> None:
    """Only a check that somebody asks for finds it, and best_of stays what it was."""
    params = api.SamplingParams()
    params.n = 2
    assert params.best_of == 1
    with pytest.raises(ValueError, match="best_of"):
        params._validate()


def test_more_than_one_guide_is_refused_with_the_options(api: ModuleType) -> None:
    """The guides themselves are not checked before; an empty one does not count."""
    both = api.GuidedDecodingParams(regex="a", json_object=True)
    with pytest.raises(ValueError, match="one guide"):
        api.SamplingParams(guided_decoding=both)
    api.SamplingParams(guided_decoding=api.GuidedDecodingParams(regex="a", grammar=""))


@pytest.mark.parametrize(
    ("guided", "kind", "text"),
    [
        ({"json_object": True}, "JSON", None),
        ({"json": {"type": "object"}}, "JSON_SCHEMA", '{"type": "object"}'),
        ({"json": ""}, "JSON_SCHEMA", ""),
        ({"regex": "a+"}, "REGEX", "a+"),
        ({"grammar": "root ::= x"}, "EBNF_GRAMMAR", "root ::= x"),
        ({"structural_tag": "{}"}, "STRUCTURAL_TAG", "{}"),
    ],
)
def test_a_guide_reaches_the_engine_by_its_kind(
    api: ModuleType, guided: dict, kind: str, text: str | None
) -> None:
    """A dictionary is dumped, and an empty schema is a schema."""
    sent = api.SamplingParams(
        guided_decoding=api.GuidedDecodingParams(**guided)
    )._get_guided_decoding_params()
    assert (sent.guide_type.name, sent.guide) == (kind, text)


def test_stop_words_need_the_set_up_that_an_end_id_prevents(api: ModuleType) -> None:
    """With an explicit end id nobody encodes them, and the engine's process finds that out."""
    with pytest.raises(RuntimeError, match="set-up"):
        api.SamplingParams(end_id=2, stop="\n")._get_stop_words()


def test_the_set_up_encodes_words_and_adds_the_models_ends(api: ModuleType) -> None:
    """The end comes from the tokenizer; the model's other ends are added to the caller's own list."""
    tokenizer = SimpleNamespace(
        eos_token_id=2, pad_token_id=None, encode=lambda text, add_special_tokens: [len(text)]
    )
    mine = [9]
    params = api.SamplingParams(stop=["ab"], stop_token_ids=mine)
    params._setup(tokenizer, None, SimpleNamespace(eos_token_id=[2, 3]))
    assert (params.end_id, params.pad_id, mine) == (2, 2, [9, 3])
    assert params._get_stop_words() == [[9], [3], [2]]
    assert params._get_stop_reasons_and_words() == [(9, [9]), (3, [3]), ("ab", [2])]


@pytest.mark.parametrize(
    ("options", "word"),
    [({"repetition_penalty": 0.0}, "repetition_penalty"), ({"top_p": 0}, "top_p"), ({"seed": -1}, "seed")],
)
def test_what_only_the_engine_refuses_is_refused_there(api: ModuleType, options: dict, word: str) -> None:
    """The options are accepted; their compiled form is not."""
    params = api.SamplingParams(**options)
    with pytest.raises(RuntimeError, match=word):
        params._get_sampling_config()


def test_prompt_logprobs_bring_the_context_logits_along(api: ModuleType) -> None:
    """The engine makes them for itself when the caller did not ask for them."""
    config = api.SamplingParams(prompt_logprobs=0)._get_output_config(is_pytorch_backend=True)
    assert (config.return_context_logits, config.return_log_probs) == (True, False)


def test_beams_and_sequences_are_told_apart(api: ModuleType) -> None:
    """Under beam search best_of is the width; otherwise it is how many sequences are sampled."""
    beams = api.SamplingParams(use_beam_search=True, n=2, best_of=4)._get_sampling_config()
    sampled = api.SamplingParams(n=2, best_of=4, temperature=1.0)._get_sampling_config()
    assert (beams.beam_width, beams.num_return_sequences) == (4, 2)
    assert (sampled.beam_width, sampled.num_return_sequences) == (1, 4)


def test_a_bias_becomes_a_tensor_of_its_own(api: ModuleType) -> None:
    """A list and a tensor are copied: what the caller changes later changes nothing."""
    import torch

    mine = torch.zeros(3)
    params = api.SamplingParams(embedding_bias=mine)
    mine[0] = 1
    assert params.embedding_bias.tolist() == [0, 0, 0]
    assert api.SamplingParams(embedding_bias=[1, 2]).embedding_bias.dtype == torch.float32


@given(n=st.integers(1, 8), more=st.integers(0, 8), temperature=st.floats(0.01, 2))
def test_sampled_options_are_kept_as_they_were_given(
    api: ModuleType, n: int, more: int, temperature: float
) -> None:
    """Whatever fits comes out unchanged in the engine's form."""
    config = api.SamplingParams(n=n, best_of=n + more, temperature=temperature)._get_sampling_config()
    assert (config.num_return_sequences, config.temperature) == (n + more, temperature)
