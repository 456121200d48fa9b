"""KV blocks are named by Python's hashes: all processes of an engine have to make the same ones."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from protocols.bounds import ignore_bound
from service.engine_needs import EngineNeeds
from service.models import ResolvedModel
from service.trtllm_engine import build_trtllm
from tests.doubles.trtllm_llms import write_folder
from tests.service.options.world import load, with_tensorrt

if TYPE_CHECKING:
    from pathlib import Path

NAME = "PYTHONHASHSEED"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell that says nothing of it; what is set here is forgotten afterwards."""
    monkeypatch.setenv(NAME, "1")
    monkeypatch.delenv(NAME)


def build(folder: Path) -> None:
    settings = load("--engine", "trtllm", installed=with_tensorrt())
    model = ResolvedModel(write_folder(folder), "model", "folder")
    needs = EngineNeeds(
        model=model, processors={}, on_bound=ignore_bound, progress=lambda _stage, _fraction: None
    )
    build_trtllm(settings, needs)


def hashes(text: str) -> set[str]:
    """Of this text, by several processes that are started now."""
    command = [sys.executable, "-c", f"print(hash({text!r}))"]
    return {subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(3)}


def test_processes_of_an_engine_agree_on_hashes(tmp_path: Path) -> None:
    """Before it is built any two differ; afterwards a rank knows the blocks that another one names."""
    assert len(hashes("block")) == 3
    build(tmp_path)
    assert len(hashes("block")) == 1


def test_what_the_operator_set_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that share caches are given one seed by whoever starts them."""
    monkeypatch.setenv(NAME, "17")
    build(tmp_path)
    assert os.environ[NAME] == "17"
