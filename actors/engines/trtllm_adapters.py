"""LoRA adapters by name. Beside TensorRT-LLM's driver, for options are checked before it is chosen."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


class NamedAlike(ValueError):
    """Two folders of one name, by the paths under which they were given."""

    def __init__(self, first: Path, second: Path) -> None:
        self.first = first
        self.second = second
        super().__init__(f"{first} and {second}")


def adapters_by_name(folders: Iterable[str]) -> dict[str, Path]:
    """A folder each, known by its name; one that is given twice counts once. Raises NamedAlike."""
    named: dict[str, Path] = {}
    for folder in map(Path, folders):
        first = named.setdefault(folder.name, folder)
        if os.path.realpath(first) != os.path.realpath(folder):
            raise NamedAlike(first, folder)
    return named
