"""Guessing the name that was meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.options.nearest import advice, edit_distance, is_near_miss, near, nearest

_WORDS = st.text("abc-_", max_size=8)


@given(_WORDS, _WORDS)
def test_distance_is_symmetric_and_zero_only_for_equals(left: str, right: str) -> None:
    """As a distance should be."""
    assert edit_distance(left, right) == edit_distance(right, left)
    assert (edit_distance(left, right) == 0) == (left == right)


def test_one_slip_costs_one() -> None:
    """A letter too few, too many, wrong, or two swapped."""
    for slip in ("drin", "draain", "drawn", "drian"):
        assert edit_distance("drain", slip) == 1


@given(st.lists(_WORDS, min_size=1), _WORDS)
def test_a_guess_is_one_of_the_names(names: list[str], word: str) -> None:
    """Always, and the name itself when it is there."""
    assert nearest(word, names) in names


def test_the_beginning_of_a_name_means_that_name() -> None:
    """Upstream's parser takes abbreviations; here they get the full name as a hint."""
    assert nearest("--served", ["--seed", "--served-model-name"]) == "--served-model-name"


@pytest.mark.parametrize(
    ("word", "right", "other"),
    [
        ("padding_enabled", "enable_padding", "batch_sizes"),
        ("max_rank", "max_lora_rank", "max_loras"),
        ("any_order", "tool_arguments_any_order", "any_border_at_all"),
        ("free_gpu_mem_fraction", "free_gpu_memory_fraction", "free_gpu_fraction_of_all"),
        ("Length-Of-Sequence", "sequence_length_of", "length"),
    ],
)
def test_words_count_before_letters(word: str, right: str, other: str) -> None:
    """Their order, and how much of each is written, is what people mix up."""
    assert near(word, [other, right]) == right


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("--tp-size", "--device"),
        ("--tp-size", "--kv-block-size"),
        ("--ep", "--help"),
        ("x", "dtype"),
        ("x", "xgrammar"),
        ("served_model_name", "encode_only"),
        ("served_model_name", "model_kwargs"),
        ("no", "notify"),
    ],
)
def test_a_name_that_is_far_is_not_named(word: str, name: str) -> None:
    """It would send its reader to another option."""
    assert near(word, [name]) is None
    assert advice(word, [name], "see there") == "see there"


def test_there_is_nothing_near_among_no_names() -> None:
    """A framework may have no parsers."""
    assert near("hermes", []) is None


@given(st.sampled_from(["drain-timeout", "max_live", "kv_cache_config"]), st.data())
def test_one_slip_is_always_near(name: str, data: st.DataObject) -> None:
    """Wherever it is."""
    at = data.draw(st.integers(0, len(name) - 1))
    slip = name[:at] + "q" + name[at + 1 :]
    assert near(slip, [name, "something-else"]) == name


def test_short_names_tolerate_fewer_slips() -> None:
    """DYN_LOG is not DYN_FOO."""
    assert is_near_miss("DYN_LOGS", "DYN_LOG")
    assert not is_near_miss("DYN_FOO", "DYN_LOG")
    assert not is_near_miss("DYN_LOG", "DYN_LOG")
