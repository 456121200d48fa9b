"""An older llguidance costs constraints, and nothing else."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from actors.engines.torch import TorchConfig, TorchEngine
from actors.engines.torch.guidance import why_unguided


@pytest.mark.parametrize(
    ("version", "is_enough"), [("0.7.29", False), ("1.4.9", False), ("1.5.0", True), ("2.0", True)]
)
def test_a_release_is_enough_or_is_named(
    monkeypatch: pytest.MonkeyPatch, version: str, is_enough: bool
) -> None:
    """The engine says what it can do before anybody asks."""
    monkeypatch.setattr(metadata, "version", lambda _name: version)
    can = TorchEngine(TorchConfig(model_path=Path("model"))).capabilities
    assert bool(can.guided) == is_enough
    assert (version in can.no_guided) != is_enough
    assert (can.guided_backend == "llguidance") == is_enough


def test_none_at_all_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """No import is tried for it."""

    def missing(_name: str) -> str:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "version", missing)
    assert why_unguided() == "llguidance is not installed"
