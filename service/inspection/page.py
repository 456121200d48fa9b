"""One self-contained page: its style, its program and its data are in it, and it may load nothing.

The browser holds it to that: the policy in its head allows this very style and this very program, by
their digests, and no connection at all.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, cast

from service.inspection.printable import printable

_FILES = resources.files("service.inspection") / "page"
_SCRIPTS = ("words.js", "elements.js", "waterfall.js", "detail.js", "overview.js", "table.js", "main.js")
# In a script element only these can end it, or begin a comment.
_UNSAFE = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}


def render_page(view: Mapping[str, Any]) -> str:
    """The page for what `view_of` returns. Nothing in the data can become markup or program."""
    style = _read("page.css")
    script = "\n".join(("'use strict';", "{", *(_read(name) for name in _SCRIPTS), "}"))
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src {_digest(style)}",
            f"script-src {_digest(script)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    data = json.dumps(_printable(view), separators=(",", ":")).translate(_UNSAFE)
    return Template(_read("page.html")).substitute(policy=policy, style=style, script=script, data=data)


def write_page(path: Path, page: str) -> None:
    """Whole or not at all: who has the page open never reads half of the next one. Raises OSError.

    Only its owner may read it; a link stays one. What is no file (a device, a folder) is not replaced.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no file")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    part = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(page)
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def _printable(part: object) -> object:
    """Marks of direction would turn the line around that they stand in; keys are ours."""
    match part:
        case str():
            return printable(part)
        case dict():
            return {name: _printable(value) for name, value in cast("dict[str, object]", part).items()}
        case list():
            return [_printable(value) for value in cast("list[object]", part)]
        case _:
            return part


def _read(name: str) -> str:
    return (_FILES / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
