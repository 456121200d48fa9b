"""Options from ``--config FILE``, in YAML or TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import yaml

from service.options.known_names import TENSORRT_ARGUMENTS
from service.options.nearest import nearest
from service.options.tables import BY_NAME
from service.options.values import Given, Source

if TYPE_CHECKING:
    from collections.abc import Hashable

    from service.options.errors import Complaints

# Far more than every option with its comments needs.
_FILE_BYTES = 1 << 20
_SUFFIXES = (".yaml", ".yml", ".toml")


class _StrictLoader(yaml.SafeLoader):
    """YAML in which a key may be there only once; the stock loader keeps the last one silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen: set[str] = set()
        for key, _ in node.value:
            if str(key.value) in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key.value!r} is there twice")
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def read_config_file(name: str, complaints: Complaints) -> dict[str, Given]:
    """What the file gives, by option name. Values stay as the file's format reads them."""
    try:
        data = load_mapping(Path(name).expanduser())
    except ValueError as error:
        complaints.refuse(name, None, str(error))
        return {}
    given: dict[str, Given] = {}
    for key, raw in data.items():
        option = BY_NAME.get(key.replace("-", "_"))
        where = f"{name}:{key}"
        if key == "trtllm" and isinstance(raw, Mapping):
            refuse_engine_arguments(where, cast("Mapping[str, object]", raw), complaints)
        elif option is None:
            complaints.refuse(where, None, _about_unknown_key(key))
        elif not option.in_file:
            complaints.refuse(where, None, f"cannot be given in a file; use {option.flag or option.env}")
        elif raw is None:
            complaints.refuse(where, None, "has no value; leave the key out to get the default")
        elif option.name in given:
            complaints.refuse(where, None, f"the same option is there as {given[option.name].source.name}")
        else:
            given[option.name] = Given(Source("file", where), raw)
    return given


def load_mapping(path: Path) -> Mapping[str, object]:
    """The top level of a YAML or TOML file. Raises ValueError with the reason."""
    if path.suffix not in _SUFFIXES:
        raise ValueError(f"the suffix must be one of {', '.join(_SUFFIXES)}")
    try:
        if path.stat().st_size > _FILE_BYTES:
            raise ValueError(f"the file is larger than {_FILE_BYTES} bytes")
        text = path.read_text(encoding="utf-8")
        data: object = tomllib.loads(text) if path.suffix == ".toml" else yaml.load(text, _StrictLoader)  # noqa: S506
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"is no YAML: {error}".replace("\n", " ")) from error
    except RecursionError:
        raise ValueError("is nested too deep") from None
    if data is None:
        return {}
    if not isinstance(data, dict) or not all(
        isinstance(key, str) for key in cast("dict[object, object]", data)
    ):
        raise ValueError("must hold option names with their values")
    return cast("dict[str, object]", data)


def refuse_engine_arguments(where: str, document: Mapping[str, object], complaints: Complaints) -> None:
    """Refuse every key of a document of TensorRT-LLM arguments, a wrong one with the right name."""
    for key in document:
        complaints.refuse(f"{where}:{key}", None, about_engine_argument(str(key)))


def about_engine_argument(path: str) -> str:
    """Why a TensorRT-LLM argument is refused, and the right name of a wrong one."""
    first = path.split(".", maxsplit=1)[0]
    reason = "an argument of TensorRT-LLM, which this release does not drive; leave it out"
    if first in TENSORRT_ARGUMENTS:
        return reason
    return f"unknown key; the nearest is {nearest(first, TENSORRT_ARGUMENTS)} ({reason})"


def _about_unknown_key(key: str) -> str:
    if key in TENSORRT_ARGUMENTS:
        return about_engine_argument(key)
    guess = nearest(
        key, [name for name, option in BY_NAME.items() if option.in_file] + sorted(TENSORRT_ARGUMENTS)
    )
    return f"unknown key; the nearest is {guess}" if guess in BY_NAME else about_engine_argument(key)
