"""Whether this machine lets a process have namespaces of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import pytest


def skip_without(command: Sequence[str], what: str) -> None:
    """Skips where `unshare` cannot make these; `what` names them."""
    try:
        tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False, timeout=20)
    except FileNotFoundError:
        pytest.skip("unshare (util-linux) is not here")
    if tried.returncode != 0:
        pytest.skip(f"no namespaces for {what} here: {tried.stderr.strip()}")
