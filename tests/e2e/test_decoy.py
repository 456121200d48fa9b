"""A file of somebody else's with one of our names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e


def test_a_decoy_module_in_the_working_directory_stops_the_start_and_is_named(tmp_path: Path) -> None:
    """``actors.py`` beside the operator's shell is neither run nor mistaken for our package."""
    decoy = tmp_path / "actors.py"
    decoy.write_text("raise SystemExit('the decoy was run')\n", encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-m", "service", "--engine", "synthetic"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert str(decoy) in result.stderr
    assert "the decoy was run" not in result.stderr
