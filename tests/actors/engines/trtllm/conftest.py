"""The double of TensorRT-LLM in place of the library."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.doubles.trtllm_site import double_on_path

if TYPE_CHECKING:
    from actors.engines.trtllm.library import Library


@pytest.fixture
def library() -> Iterator[Library]:
    """Its classes, imported as the driver imports them."""
    from actors.engines.trtllm.library import import_library

    with double_on_path():
        yield import_library()
