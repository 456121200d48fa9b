"""Which xgrammar the tests ask: the double of it always, the real one where it is installed."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

_SITE = Path(__file__).with_name("xgrammar_site")
DOUBLE = "xgrammar's double"
KINDS = (DOUBLE, "xgrammar") if find_spec("xgrammar") else (DOUBLE,)
"""Of xgrammar, for tests that run with each."""


@contextmanager
def xgrammar_on_path(kind: str) -> Generator[None]:
    """Also for processes that are given this one's path."""
    if kind != DOUBLE:
        yield
        return
    before = sys.modules.pop("xgrammar", None)
    sys.path.insert(0, str(_SITE))
    try:
        yield
    finally:
        sys.path.remove(str(_SITE))
        sys.modules.pop("xgrammar", None)
        if before is not None:
            sys.modules["xgrammar"] = before
