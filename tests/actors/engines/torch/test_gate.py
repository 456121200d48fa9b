"""Models that would give wrong tokens are refused by name, before their weights are read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.torch import TorchConfig, TorchEngine, gate
from protocols.errors import EngineStartError
from tests.actors.engines.torch import tiny_models

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


async def refusal(folder: Path, **config: Any) -> str:
    """Why the engine does not start with this folder."""
    engine = TorchEngine(TorchConfig(model_path=folder, threads=1, **config))
    try:
        with pytest.raises(EngineStartError) as refused:
            await engine.start()
    finally:
        await engine.stop()
    return str(refused.value)


def folder_with(tmp_path: Path, config: Any) -> Path:
    """A model folder whose weights nobody could load: a refusal must come before them."""
    config.save_pretrained(tmp_path)
    header = json.dumps({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("falcon", "AttentionInterface"),
        ("bloom", "AttentionInterface"),
        ("qwen3_next", "linear_attention"),
        ("t5", "encoder-decoder"),
        ("xlstm", "state outside the KV cache"),
    ],
)
async def test_refused_by_type(kind: str, reason: str, tmp_path: Path) -> None:
    """Each refusal names the model type and the rule."""
    said = await refusal(folder_with(tmp_path, tiny_models.make_config(kind)))
    assert repr(kind) in said
    assert reason in said


async def test_a_model_that_looks_ahead_fails_the_self_test(tmp_path: Path) -> None:
    """What passes all rules and still computes something else is found by comparing logits."""
    folder = tiny_models.save(tiny_models.make_model("bert"), tmp_path)
    assert "self-test logits differ" in await refusal(folder)


async def test_quantised_checkpoints_are_refused(tmp_path: Path) -> None:
    """A quantised checkpoint is refused, not loaded as if it were plain."""
    config = tiny_models.make_config("llama", quantization_config={"quant_method": "gptq", "bits": 4})
    assert "quantised" in await refusal(folder_with(tmp_path, config))


async def test_only_safetensors(tmp_path: Path) -> None:
    """Pickled weights are never loaded."""
    tiny_models.make_config("llama").save_pretrained(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    assert "safetensors" in await refusal(tmp_path)


async def test_no_model_at_all(tmp_path: Path) -> None:
    """An empty folder is named."""
    assert str(tmp_path) in await refusal(tmp_path)


async def test_a_broken_file(tmp_path: Path) -> None:
    """A file that is no safetensors file is named."""
    tiny_models.make_config("llama").save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 40)
    assert "model.safetensors is not a safetensors file" in await refusal(tmp_path)


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs is 0"),
        ({"step_tokens": 64}, "step_tokens 64 does not exceed max_num_seqs 64"),
        ({"threads": -1}, "threads is -1"),
        ({"memory_gb": 0.0}, "memory_gb is 0.0"),
        ({"device": "cuda"}, "no CUDA device"),
        ({"max_seq_len": 10_000}, "above the model's 256"),
        ({"memory_gb": 0.0001}, "not enough memory"),
    ],
)
async def test_impossible_configurations(config: dict[str, Any], word: str, tmp_path: Path) -> None:
    """Each names the field, its value and what to change."""
    settings = {"model_path": folder_with(tmp_path, tiny_models.make_config("llama")), "threads": 1, **config}
    engine = TorchEngine(TorchConfig(**settings))
    with pytest.raises(EngineStartError, match=word):
        await engine.start()
    await engine.stop()


@pytest.mark.parametrize("rope_type", ["dynamic", "longrope"])
def test_moving_ropes_are_kept_below_their_change(rope_type: str) -> None:
    """Frequencies that depend on the longest neighbour are avoided by a shorter context."""
    config = tiny_models.make_config("llama")
    config.rope_parameters = {"rope_type": rope_type, "original_max_position_embeddings": 64}
    assert gate.context_limit(config) == 64
