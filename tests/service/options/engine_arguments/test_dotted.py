"""Dotted flags: how their words are read, and what contradicts itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.options.engine_arguments.dotted import infer
from tests.service.options.world import load, refused

_TRTLLM = ("--engine", "trtllm")


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("none", None),
        ("NULL", None),
        ("7", 7),
        ("-7", -7),
        ("0.5", 0.5),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("fp8", "fp8"),
        ("", ""),
        ("[1, 2]", [1, 2]),
        ('["a", [null, true], {"b": 0.5}]', ["a", [None, True], {"b": 0.5}]),
        ("[]", []),
        ("[1, 2", "[1, 2"),
        ("[a]", "[a]"),
        ("[NaN]", "[NaN]"),
        ('{"a": 1}', '{"a": 1}'),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_words_are_read_in_upstreams_order(word: str, value: object) -> None:
    """Nothing, a whole number, a number, yes or no, else the text; a list of JSON is one beyond that."""
    found = infer(word)
    assert (found, type(found)) == (value, type(value))


@given(st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_come_back(number: float) -> None:
    """As Python writes them."""
    assert infer(repr(number)) == number


@given(st.text(max_size=50))
def test_any_word_is_read_or_refused(word: str) -> None:
    """Nothing else can come of it."""
    try:
        found = infer(word)
    except ValueError:
        return
    assert found is None or isinstance(found, bool | int | float | str | list)


@pytest.mark.parametrize("word", ["inf", "-inf", "nan", "Infinity"])
def test_what_is_no_finite_number_is_refused(word: str) -> None:
    """No argument means it."""
    line = refused(*_TRTLLM, f"--trtllm.kv_cache_config.free_gpu_memory_fraction={word}")
    assert line.endswith("is no finite number")


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("[" * 40 + "]" * 40, "nests them deeper than 32"),
        ("[" * 100_000 + "]" * 100_000, "nested too deep"),
        (f"[{'1,' * 10_000}1]", "holds more than 10000 values"),
        ("[1, 1e999]", "holds inf, which is no number"),
    ],
    ids=["deep", "very deep", "long", "infinite"],
)
def test_a_list_of_too_much_is_refused(word: str, why: str) -> None:
    """As in a file."""
    line = refused(*_TRTLLM, f"--trtllm.model_kwargs.x={word}")
    assert line.startswith("--trtllm.model_kwargs.x: value ")
    assert why in line


def test_a_list_is_handed_over_as_one() -> None:
    """Upstream hands over the text, which no argument that is a list takes."""
    words = (
        "--trtllm.cuda_graph_config.batch_sizes=[1, 2, 4]",
        '--trtllm.lora_config.lora_dir=["/no/where"]',
    )
    arguments = load(*_TRTLLM, words[0], "--trtllm.pp_partition", "[20,12]").engine_arguments
    assert arguments is not None
    assert arguments.value("cuda_graph_config.batch_sizes") == [1, 2, 4]
    assert arguments.value("pp_partition") == [20, 12]
    assert "there is no such folder" in refused(*_TRTLLM, words[1])


@pytest.mark.parametrize("with_equals", [True, False])
def test_dotted_flags_become_objects(with_equals: bool) -> None:
    """Both ways of writing them; those of one object come together."""
    flags = {"kv_cache_config.dtype": "fp8", "kv_cache_config.max_tokens": "100", "max_batch_size": "3"}
    words = [
        word
        for path, text in flags.items()
        for word in ([f"--trtllm.{path}={text}"] if with_equals else [f"--trtllm.{path}", text])
    ]
    arguments = load(*_TRTLLM, *words).engine_arguments
    assert arguments is not None
    assert arguments.max_batch_size == 3
    assert arguments.values["kv_cache_config"] == {
        "dtype": "fp8",
        "free_gpu_memory_fraction": 0.9,
        "max_tokens": 100,
        "tokens_per_block": 32,
    }


def test_a_path_through_a_value_is_refused() -> None:
    """In either order of the flags."""
    words = ["--trtllm.kv_cache_config", "none", "--trtllm.kv_cache_config.dtype", "fp8"]
    for argv in (words, words[2:] + words[:2]):
        assert "contradicts --trtllm.kv_cache_config, which gives all of it a value" in refused(
            *_TRTLLM, *argv
        )


def test_the_last_of_two_equal_flags_wins_aloud() -> None:
    """As with every other flag."""
    settings = load(*_TRTLLM, "--trtllm.max_batch_size", "3", "--trtllm.max_batch_size", "4")
    assert settings.engine.max_num_seqs == 4
    assert settings.warnings == ("--trtllm.max_batch_size: the last value wins; it was given before",)


def test_dotted_flags_exclude_the_json_object() -> None:
    """Upstream ends with 1 here; the line names both."""
    words = [*_TRTLLM, "--override-engine-args", "{}", "--trtllm.max_batch_size", "3"]
    assert refused(*words) == (
        "--override-engine-args: cannot be combined with --trtllm.max_batch_size: give all of it in one way"
    )


def test_a_mode_called_none_is_no_null() -> None:
    """What a memory's mode is called stays a text; other words are refused as they were written."""
    path = "sleep_config.restore_modes.model_weights"
    taken = load(*_TRTLLM, f"--trtllm.{path}", "NONE").engine_arguments
    assert taken is not None
    assert taken.value(path) == "NONE"
    for word in ("none", "null", "7"):
        assert refused(*_TRTLLM, f"--trtllm.{path}", word).startswith(
            f"--trtllm.{path}: value '{word}': allowed"
        )


@pytest.mark.parametrize("word", ["7", "true", "1e5", "[1]", "inf", "v1"])
def test_a_text_is_a_text_whatever_it_looks_like(word: str) -> None:
    """Where nothing else can stand. Upstream makes a number of it, which TensorRT-LLM refuses."""
    arguments = load(*_TRTLLM, f"--trtllm.tokenizer_revision={word}").engine_arguments
    assert arguments is not None
    assert arguments.value("tokenizer_revision") == word


@pytest.mark.parametrize(("path", "word", "value"), [("revision", "none", None), ("dtype", "none", "none")])
def test_nothing_stands_where_nothing_may(path: str, word: str, value: str | None) -> None:
    """Elsewhere the word is one like any other."""
    arguments = load(*_TRTLLM, f"--trtllm.{path}={word}").engine_arguments
    assert arguments is not None
    assert arguments.value(path) == value


@pytest.mark.parametrize("word", ["3", "none", "true", "0.50", "1e3", "inf", "", "[1]"])
def test_a_variable_is_a_text_whatever_it_looks_like(word: str) -> None:
    """Environments hold nothing else."""
    arguments = load(*_TRTLLM, f"--trtllm.env_overrides.TLLM_LOG_LEVEL={word}").engine_arguments
    assert arguments is not None
    assert arguments.values["env_overrides"] == {"TLLM_LOG_LEVEL": word}


def test_a_variable_that_contradicts_another_is_not_shown() -> None:
    """It may be a password."""
    line = refused(*_TRTLLM, "--trtllm.env_overrides.A", "hunter2", "--trtllm.env_overrides.A.B", "hunter2")
    assert "contradicts --trtllm.env_overrides.A" in line
    assert "hunter2" not in line


def test_variables_in_a_list_are_not_shown() -> None:
    """Neither where the list is refused, nor where it is one that no environment takes."""
    for word in ('["hunter2", 1e999]', '["A=hunter2"]'):
        line = refused(*_TRTLLM, f"--trtllm.env_overrides={word}")
        assert line.startswith("--trtllm.env_overrides: value '********': ")
        assert "hunter2" not in line
