"""Who comes from another server writes its names: they are answered with ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from service.options.other_names import FLAGS
from service.options.tables import OPTIONS
from tests.service.options.world import refused

if TYPE_CHECKING:
    from pathlib import Path

_OURS = {flag for option in OPTIONS for flag in option.flags()}


@pytest.mark.parametrize(("theirs", "ours"), FLAGS.items())
def test_a_flag_of_another_server_is_answered_with_ours(theirs: str, ours: str) -> None:
    """With dashes or underscores; no guess by letters would find it."""
    assert ours in _OURS
    assert f"--{theirs}" not in _OURS
    for flag in (f"--{theirs}", f"--{theirs.replace('-', '_')}"):
        assert refused(flag, "2") == f"{flag}: unknown flag; here it is {ours}"


def test_so_is_a_key_of_a_file(tmp_path: Path) -> None:
    """By the key that it has here."""
    path = tmp_path / "worker.yaml"
    path.write_text("tp_size: 2\n", encoding="utf-8")
    assert refused("--config", str(path)) == f"{path}:tp_size: unknown key; here it is tensor-parallel-size"
    path.write_text("zz: 2\n", encoding="utf-8")
    assert refused("--config", str(path)).endswith(
        "unknown key; they are the flags that --help names, without the dashes in front"
    )
