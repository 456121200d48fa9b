"""Drop-in: upstream's own manifests and launch scripts start this worker, with the engine they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from protocols.spec import Stage
from tests.service.options.engine_arguments.drop_in import STARTS, UNTOLD, Start
from tests.service.options.world import TORCH_ONLY, load, value, with_tensorrt

if TYPE_CHECKING:
    from pathlib import Path

    from service.options import EngineFacts, Settings

# Upstream's workers have no drain to compare with.
SHORT_DRAIN = "the default drain of 35 s ends before the 60 s"


def _load(start: Start, folder: Path, *more: str, installed: EngineFacts) -> tuple[Settings, str]:
    path = folder / "engine.yaml"
    path.write_text(yaml.safe_dump(dict(start.engine_file)), encoding="utf-8")
    words = [str(path) if word == "ENGINE_FILE" else word for word in (*start.words, *more)]
    return load(*words, installed=installed), str(path)


@pytest.mark.parametrize("start", STARTS, ids=[start.name for start in STARTS])
def test_upstreams_starts_build_the_engine_they_mean(start: Start, tmp_path: Path) -> None:
    """Word for word, with ``--engine auto`` where TensorRT-LLM is installed."""
    settings, path = _load(start, tmp_path, installed=with_tensorrt(gpus=8))
    arguments = settings.engine_arguments
    assert arguments is not None
    assert arguments.values == {**UNTOLD, "model": start.model, **start.differs}
    assert (settings.runtime.role, settings.runtime.component) == (start.role, start.component)
    assert (settings.model.model, arguments.role) == (start.model, start.role)
    warnings = (*start.warnings, SHORT_DRAIN) if start.role is Stage.PREFILL else start.warnings
    assert len(settings.warnings) == len(warnings)
    for found, expected in zip(settings.warnings, warnings, strict=True):
        assert found.startswith(expected.replace("ENGINE_FILE", path))


@pytest.mark.parametrize("start", STARTS, ids=[start.name for start in STARTS])
def test_asking_for_the_engine_changes_nothing(start: Start, tmp_path: Path) -> None:
    """``--engine trtllm`` means the same, also where it is not installed, which the start will say."""
    settings, _ = _load(start, tmp_path, installed=with_tensorrt(gpus=8))
    asked, _ = _load(start, tmp_path, "--engine", "trtllm", installed=TORCH_ONLY)
    assert asked.engine_arguments == settings.engine_arguments


def test_the_worker_is_as_large_as_its_engine(tmp_path: Path) -> None:
    """What the engine's file says about sizes is what the worker counts with."""
    (start,) = [start for start in STARTS if start.name.startswith("recipes/deepseek-r1")]
    settings, _ = _load(start, tmp_path, installed=with_tensorrt(gpus=8))
    assert (settings.engine.max_num_seqs, settings.engine.step_tokens) == (4, 4608)
    assert (settings.model.max_seq_len, settings.model.kv_block_tokens) == (1227, 32)
    arguments = settings.engine_arguments
    assert (value(arguments, "tensor_parallel_size"), value(arguments, "enable_attention_dp")) == (4, True)


def test_code_of_a_model_runs_where_its_file_says_so(tmp_path: Path) -> None:
    """Upstream's files say it for models that bring none; the worker's own default is off."""
    settings, _ = _load(STARTS[0], tmp_path, installed=with_tensorrt(gpus=8))
    assert settings.model.trust_remote_code
    assert not load("--engine", "trtllm").model.trust_remote_code
