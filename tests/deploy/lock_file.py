"""The versions that everything was tested with: ``requirements/lock.txt``."""

from __future__ import annotations

import re

from tests.deploy.compose_files import REPOSITORY

LOCK = REPOSITORY / "requirements" / "lock.txt"


def locked(package: str) -> str:
    """The version of a package in the lock file."""
    found = re.search(rf"^{package}==(\S+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]
