"""What this process takes of the machine."""

from __future__ import annotations

import resource
from pathlib import Path

_STATM = Path("/proc/self/statm")


def rss_bytes() -> int | None:
    """Memory of this process that is resident now; None where the system does not say. Any thread."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    except OSError:
        return None
