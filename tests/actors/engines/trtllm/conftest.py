"""The double of TensorRT-LLM in place of the library."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.doubles.trtllm_llms import write_folder
from tests.doubles.trtllm_site import double_on_path

if TYPE_CHECKING:
    from pathlib import Path

    from actors.engines.trtllm.library import Library


@pytest.fixture(scope="module")
def library() -> Iterator[Library]:
    """Its classes, imported as the driver imports them. Once a module: it takes longer than a test."""
    from actors.engines.trtllm.library import import_library

    with double_on_path():
        yield import_library()


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The framework's loop; one a module, since an engine's answers belong to the loop that it began in."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
def double() -> Iterator[None]:
    """TensorRT-LLM can be imported, here and in the processes that are started."""
    with double_on_path():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a model, as the double reads it."""
    return write_folder(tmp_path_factory.mktemp("model"))
