"""A worker put together: its parts know each other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from protocols.bounds import Bound
from service.serving import assemble
from service.stopping import StopSignals
from tests.service.telemetry.readings import changes, samples_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_engine_counts_into_the_workers_own_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the embedded engine says of its bounds stands on the worker's page."""
    monkeypatch.setattr("os.environ", {"PATH": ""})
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 100}))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    worker = assemble(["--engine", "torch", "--model", str(tmp_path)], StopSignals())
    before = samples_of(worker.recorder.registry)
    engine: Any = worker._engine
    engine._config.on_bound(Bound.KV_BLOCKS, 3)
    counted = changes(before, samples_of(worker.recorder.registry))
    assert counted == {'bound_reached_total{bound="kv_blocks"}': 3}
