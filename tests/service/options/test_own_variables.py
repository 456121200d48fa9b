"""Our own variables: what the code reads, the table knows."""

from __future__ import annotations

import re
from pathlib import Path

from service.options.tables import OPTIONS

SERVICE = Path(__file__).resolve().parents[3] / "service"


def test_every_variable_of_ours_that_the_code_names_is_in_the_table() -> None:
    """An unknown DYN_ACTOR_* variable stops the start: one that we read ourselves must not."""
    known = {env for option in OPTIONS for env in option.envs()}
    named = {
        name
        for file in SERVICE.rglob("*.py")
        for name in re.findall(r"\bDYN_ACTOR_[A-Z][A-Z_]*[A-Z]\b", file.read_text(encoding="utf-8"))
    }
    assert named
    assert named - known == set()
