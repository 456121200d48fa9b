"""From ``NAME=module:Factory`` to something that makes instances, or to one error with all that is wrong."""

from __future__ import annotations

import copy
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from service.options.errors import ConfigError, Problem
from service.options.nearest import nearest
from service.options.settings import ProcessorImport
from service.processors.engine_limits import misfits

if TYPE_CHECKING:
    from service.options.settings import Settings

Factory = Callable[..., Any]

# Engines that run logits processors.
ENGINES_WITH_PROCESSORS = frozenset({"torch", "trtllm"})
# Of these, the ones that run them in a process of their own, where factories have to be found again.
ENGINES_ELSEWHERE = frozenset({"trtllm"})


@dataclass(frozen=True, slots=True)
class FactoryWithDefaults:
    """The operator's options, and over them the request's. An instance may change those it gets."""

    factory: Factory
    defaults: Mapping[str, object]

    def __call__(self, **options: object) -> Any:
        return self.factory(**copy.deepcopy({**self.defaults, **options}))


def load_processors(settings: Settings, engine: str) -> dict[str, Factory]:
    """What requests may choose, by name. Raises ConfigError, also where ``engine`` runs none."""
    for option in ("logits_processor", "test_logits_processor"):
        found = settings.resolution[option]
        # A choice that nothing obeys would be a lie.
        if found.value and engine not in ENGINES_WITH_PROCESSORS:
            able = " or ".join(sorted(ENGINES_WITH_PROCESSORS))
            text = f"engine {engine!r} runs no logits processors; leave it out, or give --engine {able}"
            raise ConfigError([Problem(found.where, found.option.show(found.value), text)])
    problems = list(_problems_of_engine(settings)) if engine in ENGINES_ELSEWHERE else []
    where = settings.resolution["logits_processor"].where
    try:
        factories = load_factories(settings.engine.processors, where, must_travel=engine in ENGINES_ELSEWHERE)
    except ConfigError as error:
        raise ConfigError([*problems, *error.problems]) from error
    if problems:
        raise ConfigError(problems)
    return factories


def _problems_of_engine(settings: Settings) -> Iterator[Problem]:
    """What its arguments say that logits processors cannot work with, where there are any."""
    has_any = settings.engine.processors or settings.engine.has_test_processor
    if settings.engine_arguments is not None and has_any:
        yield from misfits(settings.engine_arguments)


def load_factories(
    imports: Iterable[ProcessorImport], where: str, *, must_travel: bool = False
) -> dict[str, Factory]:
    """Import them and try their options. ``where``: the flag, variable or key that named them.

    must_travel: they run in another process, to which they are pickled.
    Runs the operator's code. Raises ConfigError with everything that is wrong, not only the first.
    """
    factories: dict[str, Factory] = {}
    problems: list[Problem] = []
    for one in imports:
        shown = f"{one.name}={one.factory}"
        try:
            factories[one.name] = _load(one)
            if must_travel:
                _check_travel(one.name, factories[one.name])
        except _Wrong as wrong:
            problems.append(Problem(where, shown, str(wrong)))
    if problems:
        raise ConfigError(problems)
    return factories


class _Wrong(Exception):
    """Why one processor cannot be used."""


def _load(one: ProcessorImport) -> Factory:
    factory = _find(one.factory)
    if not callable(factory):
        raise _Wrong(f"is no factory but {type(factory).__name__}: name a class or a function")
    made = FactoryWithDefaults(factory, one.options)
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):
        # Written in C, without a description: the first request will tell.
        return made
    try:
        signature.bind_partial(**one.options)
    except TypeError as exc:
        raise _Wrong(f"does not take its options ({exc}); it takes {signature}") from exc
    if not _needs_more(signature, one.options):
        _try(made)
    return made


def _check_travel(name: str, factory: Factory) -> None:
    # The package of an engine that may not be the one that runs.
    from actors.engines.trtllm.processors.factories import Factories, NotPicklable  # noqa: PLC0415

    try:
        Factories.of({name: factory})
    except NotPicklable as exc:
        raise _Wrong(str(exc)) from exc


def _find(path: str) -> object:
    module_name, _, attribute = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as exc:
        hint = "; is its folder in PYTHONPATH?" if isinstance(exc, ModuleNotFoundError) else ""
        text = f"module {module_name!r} cannot be imported ({type(exc).__name__}: {exc}){hint}"
        raise _Wrong(text) from exc
    try:
        return reduce(getattr, attribute.split("."), module)
    except AttributeError as exc:
        names = [name for name in vars(module) if not name.startswith("_")]
        guess = f"; the nearest is {nearest(attribute, names)}" if names else ""
        raise _Wrong(f"module {module_name!r} has no {attribute!r}{guess}") from exc


def _needs_more(signature: inspect.Signature, options: Mapping[str, object]) -> bool:
    """Whether only a request can make an instance, since it has to give options."""
    try:
        signature.bind(**options)
    except TypeError:
        return True
    return False


def _try(made: FactoryWithDefaults) -> None:
    """An instance is made and thrown away."""
    try:
        instance = made()
    except Exception as exc:
        raise _Wrong(f"does not take its options ({type(exc).__name__}: {exc})") from exc
    if not callable(instance):
        raise _Wrong(f"makes a {type(instance).__name__}, which cannot be called with token ids and logits")
