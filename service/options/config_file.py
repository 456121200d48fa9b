"""Options from ``--config FILE``, in YAML or TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import yaml

from service.options.known_names import TENSORRT_ARGUMENTS
from service.options.nearest import near
from service.options.other_names import our_flag, sentence_about
from service.options.tables import BY_NAME
from service.options.values import Given, Source

if TYPE_CHECKING:
    from collections.abc import Hashable

    from service.options.errors import Complaints

# Far more than every option with its comments needs.
_FILE_BYTES = 1 << 20
_SUFFIXES = (".yaml", ".yml", ".toml")
_ENGINE_KEY = "trtllm"


class _StrictLoader(yaml.SafeLoader):
    """YAML in which a key may be there only once; the stock loader keeps the last one silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen: set[str] = set()
        for key, _ in node.value:
            if str(key.value) in seen:
                about = f"the key {key.value!r} is there twice"
                raise yaml.constructor.ConstructorError(None, None, about, key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """What the file gives, by option name. Values stay as the file's format reads them.

    engine_arguments: TensorRT-LLM's own, which stand under one key.
    """

    given: dict[str, Given]
    engine_arguments: Given | None = None


def read_config_file(name: str, complaints: Complaints) -> ConfigFile:
    """Read it. Mistakes go to ``complaints``; a file that cannot be read counts as empty."""
    try:
        data = load_mapping(Path(name).expanduser())
    except ValueError as error:
        complaints.refuse(name, None, str(error))
        return ConfigFile({})
    given: dict[str, Given] = {}
    engine_arguments = None
    for key, raw in data.items():
        option = BY_NAME.get(key.replace("-", "_"))
        where = f"{name}:{key}"
        if key == _ENGINE_KEY:
            engine_arguments = Given(Source("file", where), raw)
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
    return ConfigFile(given, engine_arguments)


def load_mapping(path: Path) -> Mapping[str, object]:
    """The top level of a YAML or TOML file. Raises ValueError with the reason."""
    if path.suffix not in _SUFFIXES:
        raise ValueError(f"the suffix must be one of {', '.join(_SUFFIXES)}")
    if path.suffix != ".toml":
        return load_yaml_mapping(path)
    try:
        return tomllib.loads(_text_of(path))
    except RecursionError:
        raise ValueError("is nested too deep") from None


def load_yaml_mapping(path: Path) -> Mapping[str, object]:
    """The top level of a YAML file, whatever its suffix. Raises ValueError with the reason."""
    text = _text_of(path)
    try:
        data: object = yaml.load(text, _StrictLoader)  # noqa: S506  a safe loader that is stricter still
    except (yaml.YAMLError, ValueError) as error:
        # A ValueError: of a date that is none.
        raise ValueError(f"is no YAML: {_about_yaml(error)}") from error
    except RecursionError:
        raise ValueError("is nested too deep") from None
    if data is None:
        return {}
    if not isinstance(data, dict) or not all(
        isinstance(key, str) for key in cast("dict[object, object]", data)
    ):
        raise ValueError("must hold names with their values")
    return cast("dict[str, object]", data)


def _text_of(path: Path) -> str:
    try:
        if path.stat().st_size > _FILE_BYTES:
            raise ValueError(f"the file is larger than {_FILE_BYTES} bytes")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error


def _about_yaml(error: yaml.YAMLError | ValueError) -> str:
    """The place as editors count it, and what is wrong there; none of the file's other lines."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())
    mark, begun = error.problem_mark, error.context_mark
    since = f" that begins in line {begun.line + 1}" if begun is not None and begun.line < mark.line else ""
    words = ", ".join(text for text in ((error.context or "") + since, error.problem) if text)
    return f"line {mark.line + 1}, column {mark.column + 1}: {words}"


def _about_unknown_key(key: str) -> str:
    if key in TENSORRT_ARGUMENTS:
        return f"an argument of TensorRT-LLM: write it under the key {_ENGINE_KEY}"
    names = [name for name, option in BY_NAME.items() if option.in_file]
    ours = our_flag(key)
    if ours is not None:
        return f"unknown key; here it is {ours.removeprefix('--')}"
    if sentence_about(key) is not None:
        return f"unknown key; {sentence_about(key)}"
    guess = near(key, names + sorted(TENSORRT_ARGUMENTS))
    if guess is None:
        return "unknown key; they are the flags that --help names, without the dashes in front"
    under = "" if guess in BY_NAME else f", an argument of TensorRT-LLM, under the key {_ENGINE_KEY}"
    return f"unknown key; the nearest is {guess}{under}"
