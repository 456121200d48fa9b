"""One row of the table of options."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from service.options.kinds import Boolean, Kind, SecretText

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.options.engine_choice import EngineName
    from service.options.values import Value


class Group(Enum):
    """The headings of ``--help`` and of the documentation, in their order."""

    RUNTIME = "Runtime and discovery"
    MODEL = "Model and limits"
    REQUESTS = "Requests: parsers, templates, health"
    ENGINE = "Engine"
    TORCH = "Engine torch"
    SYNTHETIC = "Engine synthetic"
    ADMISSION = "Admission and streaming"
    SHUTDOWN = "Shutdown"
    OPERATION = "Operation"
    TENSORRT = "TensorRT-LLM"
    MEDIA = "Media and multimodal"
    DIFFUSION = "Diffusion"
    TRANSPORT = "Transport and newer frameworks"
    ROUTER = "Routing advertised by the worker"
    LEGACY = "Variables of the upstream worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why an option that is known by name cannot be used. Its default value is always accepted.

    needs: what would have to be there. instead: what to do today.
    accepts: other values that mean no more than the default does.
    engines: those that honour it nevertheless; of its values only ``engine_values``, where there are any.
    engine_reason: what these say of its other values.
    from_environment: "warn" for variables that other components read, too; they must not stop a worker.
    """

    needs: str
    instead: str
    accepts: tuple[Value, ...] = ()
    engines: tuple[EngineName, ...] = ()
    engine_values: tuple[Value, ...] = ()
    engine_reason: str = ""
    from_environment: str = "refuse"

    def reason_with(self, engine: EngineName) -> str:
        """One sentence and a half for the operator."""
        if engine in self.engines and self.engine_reason:
            return self.engine_reason
        return f"not available in this release: it needs {self.needs}; {self.instead}"

    def spares(self, value: Value, engine: EngineName) -> bool:
        """Whether the value may be given with this engine."""
        if value in self.accepts:
            return True
        return engine in self.engines and (not self.engine_values or value in self.engine_values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option, everywhere it can be given.

    name: the key in files, and the attribute's name. flag: None for what is read from the environment only.
    aliases: other flags that are as good. deprecated_*: accepted with a warning.
    default_text: shown instead of a default that is None or computed.
    engine_defaults: the default with an engine that has another one.
    framework_field: the field of the framework's WorkerConfig without which the option has no effect.
    in_file: whether ``--config FILE`` may hold it. is_repeatable: several flags give several values.
    bare: what the flag without a value means; "" where it needs one.
    """

    name: str
    kind: Kind
    default: Value
    group: Group
    help: str
    flag: str | None = None
    env: str | None = None
    aliases: tuple[str, ...] = ()
    deprecated_flags: tuple[str, ...] = ()
    env_aliases: tuple[str, ...] = ()
    deprecated_envs: tuple[str, ...] = ()
    default_text: str = ""
    engine_defaults: tuple[tuple[EngineName, Value], ...] = ()
    refusal: Refusal | None = None
    framework_field: str | None = None
    in_file: bool = True
    is_repeatable: bool = False
    bare: str = ""

    @property
    def is_switch(self) -> bool:
        """Whether the flag takes no value and has a ``--no-`` form."""
        return isinstance(self.kind, Boolean)

    @property
    def is_secret(self) -> bool:
        """Whether the value must never be shown, nor come from the command line."""
        return isinstance(self.kind, SecretText)

    @property
    def is_usable(self) -> bool:
        """Whether some value other than the default can be given in this release."""
        return self.refusal is None or bool(self.refusal.accepts or self.refusal.engines)

    @property
    def is_for_some_engines(self) -> bool:
        """Whether it is honoured in full, but not with every engine."""
        return self.refusal is not None and bool(self.refusal.engines) and not self.refusal.engine_values

    @property
    def is_action(self) -> bool:
        """Whether the flag asks for a print-out instead of setting something."""
        return self.env is None and not self.in_file

    @property
    def title(self) -> str:
        """How the option is called when it was given nowhere."""
        return self.flag or self.env or self.name

    def flags(self) -> Iterator[str]:
        """Every accepted spelling, without the ``--no-`` forms."""
        if self.flag:
            yield self.flag
        yield from self.aliases
        yield from self.deprecated_flags

    def envs(self) -> Iterator[str]:
        """Every accepted variable, the strongest first."""
        if self.env:
            yield self.env
        yield from self.env_aliases
        yield from self.deprecated_envs

    def default_with(self, engine: EngineName) -> Value:
        """The default when this engine runs."""
        return dict(self.engine_defaults).get(engine, self.default)

    def show(self, value: Value) -> str:
        """A value as text for people: secrets masked, None in words."""
        if value is None:
            return self.default_text or "not set"
        return self.kind.show(value)


def flag_of(name: str) -> str:
    """``max_live`` -> ``--max-live``."""
    return "--" + name.replace("_", "-")
