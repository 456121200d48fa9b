"""Are these packages ours? Generic names can be shadowed by a file in the working directory.

A stray ``actors.py`` beside the operator's shell would otherwise be imported in place of ours.
The check looks packages up without importing them, so a decoy is named and never run.
"""

from __future__ import annotations

import json
from importlib import metadata, util
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

DISTRIBUTION = "dynamo-actor-worker"
PACKAGES = ("service", "actors", "protocols")


class ForeignPackage(Exception):
    """A package of ours would be imported from somewhere else."""


def check_origins() -> None:
    """Raises ForeignPackage, naming the file that stands in the way and where ours is."""
    home = _home()
    for package in PACKAGES:
        spec = util.find_spec(package)
        found = Path(spec.origin).resolve() if spec and spec.origin else None
        ours = home / package / "__init__.py"
        if found != ours.resolve():
            raise ForeignPackage(
                f"package {package!r} would come from {found or 'nowhere'}, not from {ours}: "
                "move that file away, or start from another directory"
            )


def _home() -> Path:
    """The folder that holds the distribution's packages: site-packages, or a checkout (editable)."""
    try:
        distribution = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        raise ForeignPackage(f"the distribution {DISTRIBUTION} is not installed: run `make setup`") from None
    direct: dict[str, Any] = json.loads(distribution.read_text("direct_url.json") or "{}")
    if direct.get("dir_info", {}).get("editable"):
        url: str = direct["url"]
        return Path(unquote(urlparse(url).path))
    return Path(str(distribution.locate_file("")))
