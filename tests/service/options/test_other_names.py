"""Who comes from another server writes its names: they are answered with ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from service.options.known_names import TENSORRT_ARGUMENTS
from service.options.other_names import FLAGS, SENTENCES
from service.options.tables import OPTIONS
from tests.service.options.world import refused

if TYPE_CHECKING:
    from pathlib import Path

_OURS = {flag for option in OPTIONS for flag in option.flags()}


@pytest.mark.parametrize(("theirs", "ours"), FLAGS.items())
def test_a_flag_of_another_server_is_answered_with_ours(theirs: str, ours: str) -> None:
    """With dashes or underscores; no guess by letters would find it."""
    assert ours in _OURS
    assert f"--{theirs}" not in _OURS
    for flag in (f"--{theirs}", f"--{theirs.replace('-', '_')}"):
        assert refused(flag, "2") == f"{flag}: unknown flag; here it is {ours}"


@pytest.mark.parametrize(("theirs", "sentence"), SENTENCES.items())
def test_a_flag_without_one_of_ours_is_answered_with_what_to_do(
    theirs: str, sentence: str, tmp_path: Path
) -> None:
    """No guess by letters: the nearest name would be another thing."""
    assert f"--{theirs}" not in _OURS
    for flag in (f"--{theirs}", f"--{theirs.replace('-', '_')}"):
        assert refused(flag, "2") == f"{flag}: unknown flag; {sentence}"
    path = tmp_path / "worker.yaml"
    key = theirs.replace("-", "_")
    path.write_text(f"{key}: 2\n", encoding="utf-8")
    about = "an argument of TensorRT-LLM: write it under the key trtllm"
    expected = about if key in TENSORRT_ARGUMENTS else f"unknown key; {sentence}"
    assert refused("--config", str(path)) == f"{path}:{key}: {expected}"


@pytest.mark.parametrize(
    ("flag", "right"),
    [
        ("--max-input-len", "--trtllm.max_input_len"),
        ("--stream_interval", "--trtllm.stream_interval"),
        ("--enable-autotunr", "--trtllm.enable_autotuner"),
        ("--cuda-graph-config", "--trtllm.cuda_graph_config.KEY"),
    ],
)
def test_an_argument_of_tensorrt_as_a_flag_is_told_its_prefix(flag: str, right: str) -> None:
    """Also where it is misspelt; a group is given key by key."""
    assert refused(flag, "2") == f"{flag}: unknown flag; TensorRT-LLM's argument is given as {right}"


def test_an_old_spelling_is_no_advice() -> None:
    """Whoever followed it would be told to write another one."""
    assert refused("--publish-event").endswith("the nearest is --publish-kv-events")


def test_so_is_a_key_of_a_file(tmp_path: Path) -> None:
    """By the key that it has here."""
    path = tmp_path / "worker.yaml"
    path.write_text("tp_size: 2\n", encoding="utf-8")
    assert refused("--config", str(path)) == f"{path}:tp_size: unknown key; here it is tensor-parallel-size"
    path.write_text("zz: 2\n", encoding="utf-8")
    assert refused("--config", str(path)).endswith(
        "unknown key; they are the flags that --help names, without the dashes in front"
    )
