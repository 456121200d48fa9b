"""The tiny model, made once a session, and a cache folder of its own for every test."""

from pathlib import Path

import pytest

from service.models.catalogue import BuiltInModel
from tests.service.models.tiny import catalogue_entry, write_tiny_wheel


@pytest.fixture(scope="session")
def tiny_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel; the GGUF file in it lies beside it as tiny.gguf."""
    return write_tiny_wheel(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny(tiny_wheel: Path) -> BuiltInModel:
    """Return its catalogue entry."""
    return catalogue_entry(tiny_wheel)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache folder that the whole code uses."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("DYN_ACTOR_CACHE_DIR", str(folder))
    return folder
