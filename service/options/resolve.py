"""From what was given to one value an option: flag, then environment, then file, then default."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from service.options.config_file import read_config_file
from service.options.environment import read_environment
from service.options.tables import OPTIONS
from service.options.values import DEFAULT, Given, Source, Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from service.options.command_line import CommandLine
    from service.options.engine_choice import EngineName
    from service.options.errors import Complaints
    from service.options.option import Option

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Resolved:
    """One option's value, where it came from, and the weaker sources it overrides."""

    option: Option
    value: Value
    source: Source
    overrides: tuple[Source, ...] = ()

    @property
    def is_given(self) -> bool:
        """Whether the operator said it, be it the default value."""
        return self.source.kind != "default"

    @property
    def where(self) -> str:
        """The option as the operator knows it: as it was given, else by its flag."""
        return self.source.name or self.option.title


class Resolution:
    """Every option with its value. Getters check the type, so that a wrong table fails at once."""

    def __init__(
        self,
        items: Mapping[str, Resolved],
        dotted: Mapping[str, Given] | None = None,
        filed: Given | None = None,
    ) -> None:
        """dotted: values of ``--trtllm.*`` by their paths. filed: what ``--config`` holds as trtllm."""
        self._items = dict(items)
        self.dotted: Mapping[str, Given] = dotted or {}
        self.filed = filed

    def __getitem__(self, name: str) -> Resolved:
        return self._items[name]

    def items(self) -> Sequence[Resolved]:
        """All options in the order of the table."""
        return tuple(self._items.values())

    def adopt(self, name: str, other: str) -> Resolution:
        """The same values, but ``name`` has the value and the source of ``other``."""
        taken = replace(self._items[other], option=self._items[name].option)
        return Resolution({**self._items, name: taken}, self.dotted, self.filed)

    def with_defaults_of(self, engine: EngineName) -> Resolution:
        """The same, with that engine's defaults for what nobody gave."""
        items = {
            name: item if item.is_given else replace(item, value=item.option.default_with(engine))
            for name, item in self._items.items()
        }
        return Resolution(items, self.dotted, self.filed)

    def engine_arguments(self) -> tuple[Given, ...]:
        """Everything that was given in TensorRT-LLM's own words outside of its options."""
        return (*self.dotted.values(), *([self.filed] if self.filed else []))

    def get(self, name: str, kind: type[T]) -> T:
        """The value of an option that always has one."""
        value = self._items[name].value
        if not isinstance(value, kind):
            raise TypeError(f"{name} is {type(value).__name__}, not {kind.__name__}")
        return value

    def find(self, name: str, kind: type[T]) -> T | None:
        """The value of an option that may have none."""
        return None if self._items[name].value is None else self.get(name, kind)


def resolve(typed: CommandLine, environ: Mapping[str, str], complaints: Complaints) -> Resolution:
    """One value for each option. A value that cannot be read is complained about and stays at its default."""
    layers = [typed.given, read_environment(environ, complaints)]
    file_name, filed = _config_file_name(layers), None
    if file_name:
        file = read_config_file(file_name, complaints)
        layers.append(file.given)
        filed = file.engine_arguments
    items = {option.name: _resolve_one(option, layers, complaints) for option in OPTIONS}
    return Resolution(items, typed.engine_arguments, filed)


def _config_file_name(layers: list[dict[str, Given]]) -> str:
    for layer in layers:
        if "config" in layer:
            return str(layer["config"].raw)
    return ""


def _resolve_one(option: Option, layers: list[dict[str, Given]], complaints: Complaints) -> Resolved:
    found = [layer[option.name] for layer in layers if option.name in layer]
    if not found:
        return Resolved(option, option.default, DEFAULT)
    winner, *losers = found
    overrides = tuple(loser.source for loser in losers)
    try:
        value = _value_of(option, winner)
    except ValueError as error:
        detail = f" ({error})" if str(error) else ""
        shown = "(hidden)" if option.is_secret else winner.raw
        complaints.refuse(winner.source.name, shown, f"allowed: {option.kind.allowed}{detail}")
        return Resolved(option, option.default, winner.source, overrides)
    return Resolved(option, value, winner.source, overrides)


def _value_of(option: Option, given: Given) -> Value:
    if given.source.kind == "file":
        return option.kind.read(given.raw)
    return option.kind.parse(str(given.raw))
