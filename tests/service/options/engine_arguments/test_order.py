"""Where an argument may be said, and which word counts: defaults, file, flags, override."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.service.options.world import load, refused

if TYPE_CHECKING:
    from pathlib import Path

_TRTLLM = ("--engine", "trtllm")
_SIZES = st.none() | st.integers(1, 4)


def _file(folder: Path, document: object, name: str = "engine.yaml") -> str:
    path = folder / name
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return str(path)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(extra=_SIZES, variable=_SIZES, flag=_SIZES, dotted=_SIZES)
def test_the_strongest_word_counts_and_every_loser_is_named(
    tmp_path: Path, extra: int | None, variable: int | None, flag: int | None, dotted: int | None
) -> None:
    """File under flag (a flag stands for its variable) under dotted; equal values contradict nobody."""
    path = _file(tmp_path, {} if extra is None else {"max_batch_size": extra})
    words = [*_TRTLLM, "--extra-engine-args", path]
    words += [] if flag is None else ["--max-batch-size", str(flag)]
    words += [] if dotted is None else ["--trtllm.max_batch_size", str(dotted)]
    env = {} if variable is None else {"DYN_TRTLLM_MAX_BATCH_SIZE": str(variable)}
    found = load(*words, env=env)
    said = [
        (extra, path),
        (variable, "DYN_TRTLLM_MAX_BATCH_SIZE") if flag is None else (flag, "--max-batch-size"),
        (dotted, "--trtllm.max_batch_size"),
    ]
    said_values = [(value, where) for value, where in said if value is not None]
    assert found.engine.max_num_seqs == (said_values[-1][0] if said_values else 2048)
    expected = [
        f"max_batch_size: {new} of {where} wins over {old} of {loser}"
        for (old, loser), (new, where) in pairwise(said_values)
        if old != new
    ]
    assert list(found.warnings) == expected


def test_the_json_object_stands_where_the_dotted_flags_do(tmp_path: Path) -> None:
    """Over flags and file, objects into each other."""
    path = _file(tmp_path, {"kv_cache_config": {"dtype": "fp8", "free_gpu_memory_fraction": 0.5}})
    found = load(
        *_TRTLLM,
        *("--extra-engine-args", path, "--free-gpu-memory-fraction", "0.6"),
        *("--override-engine-args", '{"kv_cache_config": {"free_gpu_memory_fraction": 0.7}}'),
    )
    name = "kv_cache_config.free_gpu_memory_fraction"
    assert found.warnings == (
        f"{name}: 0.6 of --free-gpu-memory-fraction wins over 0.5 of {path}",
        f"{name}: 0.7 of --override-engine-args wins over 0.6 of --free-gpu-memory-fraction",
    )
    assert found.engine_arguments is not None
    assert found.engine_arguments.values["kv_cache_config"] == {
        "dtype": "fp8",
        "free_gpu_memory_fraction": 0.7,
        "tokens_per_block": 32,
    }


@pytest.mark.parametrize("suffix", [".yaml", ".toml"])
def test_the_config_file_may_hold_arguments_under_a_key(tmp_path: Path, suffix: str) -> None:
    """They work like dotted flags, which win over them."""
    texts = {
        ".yaml": "max_batch_size: 2\ntrtllm:\n  max_batch_size: 3\n  kv_cache_config: {dtype: fp8}\n",
        ".toml": 'max_batch_size = 2\n[trtllm]\nmax_batch_size = 3\nkv_cache_config = {dtype = "fp8"}\n',
    }
    path = tmp_path / f"worker{suffix}"
    path.write_text(texts[suffix], encoding="utf-8")
    found = load(*_TRTLLM, "--config", str(path), "--trtllm.max_batch_size", "4")
    assert found.engine.max_num_seqs == 4
    assert found.warnings == (
        f"max_batch_size: 4 of --trtllm.max_batch_size wins over 3 of {path}:trtllm",
        f"max_batch_size: 4 of --trtllm.max_batch_size wins over 2 of {path}:max_batch_size",
    )
    assert found.engine_arguments is not None
    assert found.engine_arguments.values["kv_cache_config"] == {
        "dtype": "fp8",
        "free_gpu_memory_fraction": 0.9,
        "tokens_per_block": 32,
    }


def test_the_config_file_and_the_json_object_exclude_each_other(tmp_path: Path) -> None:
    """There is one strongest place."""
    path = _file(tmp_path, {"trtllm": {"max_batch_size": 3}})
    line = refused(*_TRTLLM, "--config", path, "--override-engine-args", '{"max_batch_size": 4}')
    assert line == f"--override-engine-args: cannot be combined with {path}:trtllm: give all of it in one way"


def test_arguments_ask_for_tensorrt(tmp_path: Path) -> None:
    """``--engine auto`` never serves them with another engine."""
    path = _file(tmp_path, {"trtllm": {"max_batch_size": 3}})
    found = load("--config", path, "--trtllm.max_num_tokens", "8")
    assert found.engine.tensorrt_options == ("--trtllm.max_num_tokens", f"{path}:trtllm")
    assert found.engine.expected == "trtllm"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[1]", "must hold names with their values"),
        ("7", "must hold names with their values"),
        ("1: 2", "must hold names with their values"),
        ("a: [", "is no YAML"),
        ("a: 1\na: 2\n", "there twice"),
        ("kv_cache_config: {dtype: fp8, dtype: auto}", "there twice"),
        ("model: !!python/object/apply:os.getcwd []", "is no YAML"),
        ("revision: 2020-01-01", "holds a date, which is no plain value"),
        ("max_batch_size: .inf", "holds inf, which is no number"),
        ("model_kwargs: {x: [.nan]}", "holds nan, which is no number"),
        ("model_kwargs: &a {x: *a}", "nests them deeper than 32"),
        ("model_kwargs: " + '{"a": ' * 40 + "1" + "}" * 40, "nests them deeper than 32"),
        ("model_kwargs: [" + "1," * 10_001 + "]", "holds more than 10000 values"),
        (
            "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b]\nd: &d "
            "[*c,*c,*c,*c,*c,*c]\nmodel_kwargs: [*d,*d,*d,*d,*d,*d]",
            "holds more than 10000 values",
        ),
        ("a: " + "[" * 2000, "nested too deep"),
        ("#" * (1 << 21), "larger than"),
    ],
    ids=str,
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str, why: str) -> None:
    """By its option's name or its own, whatever it does to a reader."""
    path = tmp_path / "engine.yaml"
    path.write_text(text, encoding="utf-8")
    lines = refused(*_TRTLLM, "--extra-engine-args", str(path))
    assert str(path) in lines
    assert why in lines


def test_a_file_must_be_there(tmp_path: Path) -> None:
    """Found before anything loads."""
    line = refused(*_TRTLLM, "--extra-engine-args", str(tmp_path / "none.yaml"))
    assert line.startswith("--extra-engine-args: value ")
    assert "cannot be read" in line


def test_a_files_name_needs_no_suffix(tmp_path: Path) -> None:
    """Upstream reads YAML whatever the file is called; an empty one says nothing."""
    path = _file(tmp_path, {"max_batch_size": 3}, "engine-args")
    assert load(*_TRTLLM, "--extra-engine-args", path).engine.max_num_seqs == 3
    (tmp_path / "engine-args").write_text("", encoding="utf-8")
    assert load(*_TRTLLM, "--extra-engine-args", path).engine.max_num_seqs == 2048
    assert load(*_TRTLLM, env={"DYN_TRTLLM_EXTRA_ENGINE_ARGS": ""}).engine.max_num_seqs == 2048


@pytest.mark.parametrize("text", ["[1]", "{", '{"a": 1, "a": 2}', '{"a": NaN}'])
def test_an_override_is_one_json_object(text: str) -> None:
    """Upstream ends with 1; here it is one of the configuration's problems."""
    assert refused(*_TRTLLM, "--override-engine-args", text).startswith("--override-engine-args: value ")
