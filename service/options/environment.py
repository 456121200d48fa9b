"""Options from environment variables, and variables that look like them but are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.options.known_names import FRAMEWORK_VARIABLES
from service.options.nearest import is_near_miss, near, nearest
from service.options.tables import OPTIONS
from service.options.values import Given, Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from service.options.errors import Complaints
    from service.options.option import Option

_OUR_PREFIX = "DYN_ACTOR_"
_FRAMEWORK_PREFIX = "DYN_"
# Variables with this prefix speak to this worker (or to the one it replaces) and to nobody else.
_WORKER_PREFIX = "DYN_TRTLLM_"


def read_environment(environ: Mapping[str, str], complaints: Complaints) -> dict[str, Given]:
    """What the environment gives, by option name. Values stay text.

    An unknown DYN_ACTOR_* variable is refused; one that comes close to a known name only warns, since
    it may belong to another component.
    """
    given: dict[str, Given] = {}
    for option in OPTIONS:
        names = [name for name in option.envs() if name in environ]
        if names:
            given[option.name] = Given(Source("env", names[0]), environ[names[0]])
            _report_spellings(option, names, environ, complaints)
    for name in sorted(set(environ) - _KNOWN):
        _report_stranger(name, complaints)
    return given


def _report_spellings(
    option: Option, names: list[str], environ: Mapping[str, str], complaints: Complaints
) -> None:
    for name in names:
        if name in option.deprecated_envs:
            complaints.warn(f"{name} is an old spelling: use {option.env}")
    for name in names[1:]:
        if environ[name] != environ[names[0]]:
            complaints.warn(f"{name} has no effect: {names[0]} sets the same option and wins")


def _report_stranger(name: str, complaints: Complaints) -> None:
    if name.startswith(_OUR_PREFIX):
        guess = _near(name, _OUR_PREFIX)
        meant = f"the nearest is {guess}" if guess else "--help names all of them"
        complaints.refuse(name, None, f"unknown variable; {meant}")
    elif name.startswith(_WORKER_PREFIX):
        guess = _near(name, _FRAMEWORK_PREFIX)
        complaints.warn(_of_no_effect(name) + (f"; the nearest is {guess}" if guess else ""))
    elif name.startswith(_FRAMEWORK_PREFIX):
        guess = nearest(name, _KNOWN)
        if is_near_miss(name, guess):
            complaints.warn(f"{_of_no_effect(name)}; the nearest is {guess}")


def _near(name: str, prefix: str) -> str | None:
    """What all of them begin with makes none of them alike."""
    guess = near(name.removeprefix(prefix), (one.removeprefix(prefix) for one in _with(prefix)))
    return None if guess is None else prefix + guess


def _with(prefix: str) -> Iterator[str]:
    return (known for known in _KNOWN if known.startswith(prefix))


def _of_no_effect(name: str) -> str:
    return f"{name} is not known and has no effect here"


_KNOWN: frozenset[str] = FRAMEWORK_VARIABLES | {name for option in OPTIONS for name in option.envs()}
