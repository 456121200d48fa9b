"""The ``--config`` file: formats, keys, mistakes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from service.options import ConfigError
from service.options.tables import BY_NAME
from tests.service.options.world import load, refused

if TYPE_CHECKING:
    from pathlib import Path


def _file(folder: Path, text: str, name: str = "worker.yaml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_yaml_values_keep_their_types(tmp_path: Path) -> None:
    """Numbers, switches, lists and mappings as YAML writes them."""
    path = _file(
        tmp_path,
        "max-live: 64\ndrain_timeout: 20\ntrust-remote-code: yes\nendpoint-types: [completions]\n"
        "health-check-payload: {token_ids: [1]}\ncontrol_token: swordfish\n",
    )
    settings = load("--config", path)
    assert settings.graph.max_live == 64
    assert settings.drain.drain_until_s == 25
    assert settings.model.trust_remote_code
    assert settings.runtime.endpoint_types == ("completions",)
    assert settings.requests.health_check_payload == {"token_ids": [1], "_HEALTH_CHECK": True}
    assert settings.control_token is not None
    assert settings.control_token.reveal() == "swordfish"


def test_toml_values_keep_their_types(tmp_path: Path) -> None:
    """The same from TOML."""
    path = _file(tmp_path, "max-live = 64\ndeadline = 1.5\ntrust_remote_code = true\n", "worker.toml")
    settings = load(env={"DYN_ACTOR_CONFIG": path})
    assert settings.graph.max_live == 64
    assert settings.graph.deadline_s == 1.5
    assert settings.model.trust_remote_code


def test_an_unknown_engine_key_stops_the_start_with_the_right_name(tmp_path: Path) -> None:
    """Field report S15: a misspelt kv_cache_config must not be ignored silently."""
    text = '{"kv_cache_confg": {"free_gpu_memory_fraction": 0.5}}'
    path = _file(tmp_path, text)
    for words in (
        ["--config", path],
        ["--extra-engine-args", path],
        ["--override-engine-args", text],
        ["--trtllm.kv_cache_confg.free_gpu_memory_fraction", "0.5"],
        ["--config", _file(tmp_path, f'{{"trtllm": {text}}}', "under.yaml")],
    ):
        line = refused(*words)
        assert "kv_cache_confg" in line
        assert "unknown key; the nearest is kv_cache_config" in line


@settings(max_examples=40)
@given(st.from_regex(r"[a-z_-]{1,30}", fullmatch=True))
def test_an_unknown_key_never_passes(tmp_path_factory: pytest.TempPathFactory, key: str) -> None:
    """Whatever is no option's name stops the start."""
    assume(key.replace("-", "_") not in BY_NAME)
    path = _file(tmp_path_factory.mktemp("config"), f'"{key}": 1\n')
    assert refused("--config", path).startswith(f"{path}:{key}: ")


def test_a_misspelt_key_is_answered_with_the_right_one(tmp_path: Path) -> None:
    """The guess is the key that was meant."""
    path = _file(tmp_path, "max-liv: 3\n")
    assert refused("--config", path) == f"{path}:max-liv: unknown key; the nearest is max_live"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("max-live: 3\nmax-live: 4\n", "there twice"),
        ("max-live: 3\nmax_live: 4\n", "the same option is there as"),
        ("max-live:\n", "has no value"),
        ("max-live: true\n", "allowed: a whole number from 1 to 1048576 (found bool)"),
        ("max-live: .inf\n", "(found float)"),
        ("deadline: .nan\n", "allowed: a number above 0"),
        ("deadline: .inf\n", "allowed: a number above 0"),
        ("drain-timeout: true\n", "(found bool)"),
        ("model: 7\n", "(found int)"),
        ("trust-remote-code: 1\n", "(found int)"),
        ("config: other.yaml\n", "cannot be given in a file; use --config"),
        ("system_port: 9090\n", "cannot be given in a file; use DYN_SYSTEM_PORT"),
        ("- max-live\n", "must hold names with their values"),
        ("7: 8\n", "must hold names with their values"),
        ("max-live: [\n", "is no YAML"),
        ("model: !!python/object/apply:os.getcwd []\n", "is no YAML"),
        ("trtllm: {kv_cache_confg: {x: 1}}\n", "the nearest is kv_cache_config"),
        ("kv_cache_config: {x: 1}\n", "an argument of TensorRT-LLM: write it under the key trtllm"),
        ("kv_cache_confg: {x: 1}\n", "the nearest is kv_cache_config, an argument of TensorRT-LLM, under"),
        ("trtllm: 3\n", "must hold arguments of TensorRT-LLM"),
        ("trtllm: {3: 4}\n", "must hold arguments of TensorRT-LLM"),
    ],
)
def test_what_a_file_cannot_say(tmp_path: Path, text: str, complaint: str) -> None:
    """Each mistake is refused and names the file."""
    path = _file(tmp_path, text)
    lines = refused("--config", path)
    assert lines.startswith(path)
    assert complaint in lines


def test_broken_toml_and_other_suffixes_are_refused(tmp_path: Path) -> None:
    """The suffix decides the format; there are two."""
    broken = _file(tmp_path, "max-live = ", "worker.toml")
    assert refused("--config", broken).startswith(f"{broken}: ")
    assert "the suffix must be one of .yaml, .yml, .toml" in refused(
        "--config", _file(tmp_path, "", "worker.ini")
    )
    assert "cannot be read" in refused("--config", str(tmp_path / "missing.yaml"))


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    """A hostile file is an error like any other."""
    path = _file(tmp_path, "model: " + "[" * 2_000)
    assert "nested too deep" in refused("--config", path)


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    """The file is bounded before it is read."""
    path = _file(tmp_path, "#" * (1 << 21))
    assert "larger than" in refused("--config", path)


def test_an_empty_file_gives_nothing(tmp_path: Path) -> None:
    """All defaults."""
    assert load("--config", _file(tmp_path, "# nothing yet\n")).graph.max_live == 1024


def test_a_wrong_secret_is_not_repeated(tmp_path: Path) -> None:
    """Neither the error nor its line shows the text."""
    path = _file(tmp_path, "control-token: short1\n")
    with pytest.raises(ConfigError) as caught:
        load("--config", path)
    assert "short1" not in str(caught.value)
    assert "short1" not in repr(caught.value.problems)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\n b: 2\n", "line 2, column 3: mapping values are not allowed here"),
        ("a: 1\nb:\n  c: 1\n  c: 2\n", "line 4, column 3: the key 'c' is there twice"),
        (
            "a: 1\nb: [1,\nc: 2\n",
            "line 4, column 1: while parsing a flow sequence that begins in line 2, "
            "expected ',' or ']', but got '<stream end>'",
        ),
        ("a: 2026-13-45\n", "month must be in 1..12"),
    ],
)
def test_what_is_no_yaml_is_told_by_its_place(tmp_path: Path, text: str, said: str) -> None:
    """One line with file, line, column and problem; of an engine's file too."""
    path = tmp_path / "file.yaml"
    path.write_text(text, encoding="utf-8")
    assert refused("--config", str(path)) == f"{path}: is no YAML: {said}"
    line = refused("--engine", "trtllm", "--extra-engine-args", str(path))
    assert line == f"--extra-engine-args: value {str(path)!r}: is no YAML: {said}"
