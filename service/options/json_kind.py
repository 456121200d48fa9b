"""The kind of options that hold a JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from protocols.strict_json import read_json
from service.options.values import Secret

if TYPE_CHECKING:
    from service.options.values import Value

# Largest file that is read for one value.
_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class JsonObject:
    """A JSON object. ``at_file``: @FILE reads it from a file. ``masks``: keys whose values are not shown."""

    at_file: bool = False
    masks: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        return "a JSON object or @FILE holding one" if self.at_file else "a JSON object"

    def parse(self, text: str) -> Value:
        if not text:
            return None
        if self.at_file and text.startswith("@"):
            text = _read_small_file(text[1:])
        try:
            found: object = read_json(text)
        except RecursionError:
            raise ValueError("nested too deep") from None
        return self._checked(found)

    def read(self, raw: object) -> Value:
        return self.parse(raw) if isinstance(raw, str) else self._checked(raw)

    def show(self, value: Value) -> str:
        if isinstance(value, Mapping):
            value = {**value, **{key: Secret.MASK for key in self.masks if key in value}}
        return json.dumps(value)

    def _checked(self, found: object) -> Value:
        if not isinstance(found, Mapping):
            raise ValueError(f"found {type(found).__name__}")
        return cast("Mapping[str, object]", found)


def _read_small_file(name: str) -> str:
    path = Path(name).expanduser()
    try:
        if path.stat().st_size > _FILE_BYTES:
            raise ValueError(f"the file is larger than {_FILE_BYTES} bytes")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
