"""The command line: a sub-command word, then flags of the table.

A thin parser on purpose: abbreviations are not guessed, the last of equal flags wins aloud, and every
mistake is collected instead of ending the program at the first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from service.options.errors import Complaints, ConfigError, Problem
from service.options.kinds import Words
from service.options.known_names import TENSORRT_ARGUMENTS
from service.options.nearest import advice, near
from service.options.other_names import our_flag, sentence_about
from service.options.tables import BY_NAME, OPTIONS
from service.options.values import Given, Source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from service.options.option import Option

COMMANDS = ("serve", "demo", "model", "trace", "log-level", "drain", "resume", "sleep", "wake", "status")
ENGINE_ARGUMENT_PREFIX = "--trtllm."


@dataclass(slots=True)
class CommandLine:
    """What was typed: a text for each option, and the dotted engine arguments by their path.

    Of a repeatable option the text has a line for each time.
    """

    given: dict[str, Given] = field(default_factory=dict[str, Given])
    engine_arguments: dict[str, Given] = field(default_factory=dict[str, Given])


@dataclass(frozen=True, slots=True)
class _Flag:
    option: Option
    is_negated: bool
    is_deprecated: bool


def split_command(argv: Sequence[str]) -> tuple[str, list[str]]:
    """The sub-command and the rest; no word means ``serve``. Raises ConfigError for an unknown word."""
    if not argv or argv[0].startswith("-"):
        return "serve", list(argv)
    word = argv[0]
    if word not in COMMANDS:
        known = f"one of {', '.join(COMMANDS)}"
        guess = advice(word, COMMANDS, "")
        raise ConfigError([Problem("command", word, f"{known}; {guess}" if guess else known)])
    return word, list(argv[1:])


def parse_command_line(argv: Sequence[str], complaints: Complaints) -> CommandLine:
    """Read the flags after the sub-command. Values stay text; mistakes go to ``complaints``."""
    return _Parser(argv, complaints).run()


class _Parser:
    """One pass over the words."""

    def __init__(self, argv: Sequence[str], complaints: Complaints) -> None:
        self._words = list(argv)
        self._next = 0
        self._complaints = complaints
        self._result = CommandLine()

    def run(self) -> CommandLine:
        while self._next < len(self._words):
            word = self._words[self._next]
            self._next += 1
            name, equals, value = word.partition("=")
            if name.startswith(ENGINE_ARGUMENT_PREFIX):
                self._take_engine_argument(name, value if equals else None)
            elif name in _FLAGS:
                self._take_flag(name, value if equals else None)
            elif word.startswith("-"):
                self._complaints.refuse(name, None, _about_unknown_flag(name))
                self._skip_value()
            else:
                self._complaints.refuse(
                    "command line", word, "expected a flag here (a value may be missing its flag)"
                )
        return self._result

    def _take_flag(self, name: str, value: str | None) -> None:
        flag = _FLAGS[name]
        if flag.is_deprecated:
            self._complaints.warn(f"{name} is an old spelling: use {flag.option.flag}")
        if flag.is_negated and value is not None:
            self._complaints.refuse(name, value, "a --no- flag takes no value")
        elif flag.option.is_switch:
            self._note(name, flag.option, value if value is not None else _switch_word(flag))
        else:
            self._take_value(name, flag.option, value)

    def _take_value(self, name: str, option: Option, value: str | None) -> None:
        if value is None and isinstance(option.kind, Words):
            words = list(iter(self._following_value, None))
            value = " ".join(words) if words or option.kind.may_be_empty else None
        elif value is None:
            value = self._following_value()
        value = option.bare or None if value is None else value
        if value is None:
            self._complaints.refuse(name, None, f"needs a value: {option.kind.allowed}")
        else:
            self._note(name, option, value)

    def _take_engine_argument(self, name: str, value: str | None) -> None:
        path = name.removeprefix(ENGINE_ARGUMENT_PREFIX)
        if not all(path.split(".")):
            self._complaints.refuse(
                name, None, "an empty part between dots; --trtllm.GROUP.KEY VALUE is expected"
            )
        value = self._following_value() if value is None else value
        if value is None:
            self._complaints.refuse(name, None, "needs a value")
        elif all(path.split(".")):
            self._note_engine_argument(name, path, value)

    def _note_engine_argument(self, name: str, path: str, text: str) -> None:
        before = self._result.engine_arguments.get(path)
        if before is not None and before.raw != text:
            self._complaints.warn(f"{name}: the last value wins; it was given before")
        self._result.engine_arguments[path] = Given(Source("flag", name), text)

    def _note(self, name: str, option: Option, text: str) -> None:
        before = self._result.given.get(option.name)
        if before is not None and option.is_repeatable:
            text = f"{before.raw}\n{text}"
        elif before is not None and before.raw != text:
            self._complaints.warn(f"{name}: the last value wins; {before.source.name} was given before it")
        self._result.given[option.name] = Given(Source("flag", name), text)

    def _following_value(self) -> str | None:
        """The next word, unless it is a flag. A single dash may start a value (a negative number)."""
        if self._next >= len(self._words) or self._words[self._next].startswith("--"):
            return None
        self._next += 1
        return self._words[self._next - 1]

    def _skip_value(self) -> None:
        """An unknown flag's values are not complained about once more."""
        while self._following_value() is not None:
            pass


def _switch_word(flag: _Flag) -> str:
    return "false" if flag.is_negated else "true"


def _about_unknown_flag(name: str) -> str:
    secret = next(
        (option for option in OPTIONS if option.flag is None and _spelt_as_flag(option) == name), None
    )
    if secret is not None:
        return f"is no flag; set the variable {secret.env}"
    ours = our_flag(name)
    meant = f"here it is {ours}" if ours else sentence_about(name) or _meant_by(name)
    return f"unknown flag; {meant}"


def _meant_by(name: str) -> str:
    """Also an argument of TensorRT-LLM, which has a prefix here; an old spelling only where none is near."""
    current = [spelling for spelling, flag in _FLAGS.items() if not flag.is_deprecated]
    arguments = {f"--{argument}": argument for argument in TENSORRT_ARGUMENTS - BY_NAME.keys()}
    guess = near(name, [*current, *arguments]) or near(name, _FLAGS)
    if guess in arguments:
        key = ".KEY" if guess.endswith("_config") else ""
        return f"TensorRT-LLM's argument is given as {ENGINE_ARGUMENT_PREFIX}{arguments[guess]}{key}"
    return f"the nearest is {guess}" if guess else "--help names all of them"


def _spelt_as_flag(option: Option) -> str:
    return "--" + option.name.replace("_", "-")


def _flags() -> dict[str, _Flag]:
    flags: dict[str, _Flag] = {}
    for option in OPTIONS:
        for spelling in option.flags():
            is_deprecated = spelling in option.deprecated_flags
            flags[spelling] = _Flag(option, is_negated=False, is_deprecated=is_deprecated)
            if option.is_switch:
                negated = "--no-" + spelling.removeprefix("--")
                flags[negated] = _Flag(option, is_negated=True, is_deprecated=is_deprecated)
    return flags


_FLAGS = _flags()
