"""Writes docs/configuration.md from the table: ``python -m service.options.document [FILE]``.

Without FILE the page goes to standard output. A test keeps the committed page equal to this output.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from service.options.engine_arguments.known_fields import VERSION
from service.options.engine_arguments.unusable import UNUSABLE, WITHOUT_EFFECT
from service.options.engine_arguments.worker_flags import EVENT_BUFFER_EVENTS
from service.options.known_names import FRAMEWORK_VARIABLES
from service.options.option import Group, Option, Refusal
from service.options.tables import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from service.options.values import Value

_HEAD = """\
# Configuration

<!-- Written by `python -m service.options.document docs/configuration.md` from service/options/tables/. -->

`dynamo-actor-worker` takes the flags and variables of `python -m dynamo.trtllm`, and adds its own. Without
a sub-command it serves.

## How a value is found

1. A **flag** wins: `--max-live 64` or `--max-live=64`. Of the same flag twice the last one wins, with a
   warning.
2. Then the **environment variable**.
3. Then the file of `--config FILE` (or `DYN_ACTOR_CONFIG`), YAML or TOML by its suffix.
4. Then the default.

`--print-config` shows every value with its source and the sources it overrides. `--check-config` checks all
that can be checked without loading the model, and ends with 0 or 2. Both print and exit.

* Every switch `--x` has a `--no-x` form. As variable or in a file: `true`, `1`, `yes`, `on` or `false`, `0`,
  `no`, `off`; anything else is an error.
* Numbers are plain decimal; `inf` and `nan` are refused.
* Lists take words separated by commas or blanks.
* Keys of a file are the names of the flags without the leading dashes, with dashes or underscores:

  ```yaml
  model: smollm2-135m
  max-live: 64
  drain_timeout: 20
  endpoint-types: [chat, completions]
  ```

* All mistakes are reported at once, a line each, and the process ends with 2. A line names the flag, the
  variable or FILE:key, the value, and what is allowed.
* An unknown flag, an unknown key and an unknown `DYN_ACTOR_*` variable stop the start with the right name
  where one is near; flags cannot be abbreviated. Other variables that come close to a known name, and unknown
  `DYN_TRTLLM_*` variables, are warned about: they may belong to another component.
* Secrets come from the environment or a file, never from a flag, and are masked wherever values are shown.
"""

_BUDGETS = """\
### How the shutdown budgets fit together

All times count from the signal. With grace G, `--drain-timeout` D and the framework's time-out W:

| when | what |
|---|---|
| G | the grace ends, admission closes, the drain begins |
| G + 0.7 D | requests that another worker can take over are handed back to the frontend |
| G + D | the rest ends; the engine is stopped, telemetry flushed |
| G + W - 2 | the worker has returned |
| G + W - 1 | a guard thread ends a process that has not |
| G + W | the framework's hard exit, seen as exit code 143: a bug |

G is 5 and W is D + 15 unless the operator sets the variables; what is not set, the worker sets for the
framework. W must be at least D + 7 and a whole number (the framework silently takes anything else for 30),
and `DYN_ACTOR_TERMINATION_GRACE_SECS`, when given, at least G + W. With the defaults everything is over
after 55 seconds.
"""

_REFUSED = """\
## Known but refused

These belong to the worker this one replaces. They are accepted with the values of the second column.
Anything else stops the start with the reason, so that no option is ever silently without effect. The options
under "TensorRT-LLM" above and its arguments (`--trtllm.GROUP.KEY VALUE`) are refused in the same way by the
engines torch and synthetic; `--engine auto` takes them as a wish for trtllm.
"""

_UNUSABLE_NAMES = ", ".join(f"`{name}`" for name in sorted(UNUSABLE))
_USELESS_NAMES = ", ".join(f"`{name}`" for name in sorted(WITHOUT_EFFECT))

_TENSORRT = f"""\
### How the arguments of TensorRT-LLM come together

TensorRT-LLM is built with keyword arguments. They are put together before anything loads, weakest first:

1. the defaults of this page,
2. the YAML file of `--extra-engine-args`,
3. the worker's own options that were given, as flag, variable or key of `--config FILE`,
4. one of: `--override-engine-args`; or dotted flags, `--trtllm.kv_cache_config.dtype fp8`, together with what
   `--config FILE` holds under the key `trtllm`, over which the flags win.

Objects are merged into each other, anything else is replaced as a whole. Each value that somebody gave and
that loses is named in a warning of its own. `--print-config` shows every argument with who gave it,
`--check-config` all of them in one line; values of `env_overrides` are masked. In one place this is the other
way round than in the upstream worker: there the file wins over the flags.

* A dotted value is none/null, a whole number, a number, true/false, a list in JSON (`[1, 2, 4]`), or else a
  text, in this order; always a text where the argument takes nothing else, and in `env_overrides`.
* Names are checked at every depth that is known (TensorRT-LLM {VERSION}): an unknown one stops the start with
  the nearest right name, a right one in the wrong group with its place. So are values, once all is merged:
  types, bounds, words, null where there must be a value, and a `cuda_graph_config.max_batch_size` that is not
  the largest of the `batch_sizes` beside it. With another version installed both only warn, and TensorRT-LLM
  itself decides; but what this worker reads itself must have its type in every version.
* What the worker does by itself: `skip_tokenizer_init` is true, except where a guided decoding back-end, the
  test processor or a `reasoning_parser` needs the tokenizer, which is then read from the model's folder (a
  start takes some seconds longer); with KV events the event buffer holds {EVENT_BUFFER_EVENTS} events unless
  a file says otherwise (of a decode worker no blocks are told: routers need none of them); prefill and decode
  hand over with UCX unless another `cache_transceiver_config.backend` is given; `--connector kvbm` sets
  `kv_connector_config` and switches partial reuse off.
* What is looked at on this machine: folders of `lora_config.lora_dir` and the package of the connector's
  module must be there, else the start is refused; so are two folders of one name. More ranks than visible
  GPUs are warned about.
* Without effect, with a warning, and not handed over: {_USELESS_NAMES}.
* Refused: {_UNUSABLE_NAMES}.
"""

_PASSED = """\
## Variables of the framework

Read by the framework or by other components; this worker neither uses nor changes them. There is one
exception: `DYN_ENGINE_REQUEST_LIMIT` and `DYN_DYNAMO_REQUEST_QUEUE_LIMIT` are taken out of the environment,
with a warning, since the framework's own queue loses its requests at SIGTERM. Tracing has OpenTelemetry's
variables, `OTEL_*`: [tracing.md](tracing.md#variables). A service manager sets `NOTIFY_SOCKET`,
`WATCHDOG_USEC` and `WATCHDOG_PID`, which the worker takes out of its environment and follows:
[operations.md](operations.md#under-systemd).
"""


def page() -> str:
    """The whole page."""
    return "\n".join(_sections())


def _sections() -> Iterator[str]:
    yield _HEAD
    for group in Group:
        options = [option for option in OPTIONS if option.group is group and option.is_usable]
        if options:
            yield f"## {group.value}\n"
            yield _table(("option", "default", "allowed", "what it does"), map(_row, options))
        if group is Group.SHUTDOWN:
            yield _BUDGETS
        if group is Group.TENSORRT:
            yield _TENSORRT
    yield _REFUSED
    for group in Group:
        yield from _refused_section(group)
    yield "## Old spellings\n\nAccepted with a warning.\n"
    yield _table(("old", "use"), _old_spellings())
    yield _PASSED
    yield ", ".join(f"`{name}`" for name in sorted(FRAMEWORK_VARIABLES)) + ".\n"


def _row(option: Option) -> tuple[str, ...]:
    allowed = "" if option.is_switch else option.kind.allowed
    return _names(option), _default(option), allowed, option.help


def _refused_section(group: Group) -> Iterator[str]:
    """The refused options of a group, those with the same reason in one table."""
    reasons: dict[Refusal, list[Option]] = {}
    for option in OPTIONS:
        if option.group is group and option.refusal is not None and not option.is_for_some_engines:
            reasons.setdefault(option.refusal, []).append(option)
    if reasons:
        yield f"### {group.value}\n"
    for refusal, options in reasons.items():
        softly = " As a variable it only warns." if refusal.from_environment == "warn" else ""
        yield f"Needs {refusal.needs}; {refusal.instead}.{softly}\n"
        rows = ((_names(option), _accepted(option, refusal), option.help) for option in options)
        yield _table(("option", "accepted", "what it is for"), rows)


def _accepted(option: Option, refusal: Refusal) -> str:
    accepted = [_default(option), *(_written(option, value) for value in refusal.accepts)]
    engines = " and ".join(refusal.engines)
    accepted += [f"{_written(option, value)} ({engines})" for value in refusal.engine_values]
    return ", ".join(accepted)


def _names(option: Option) -> str:
    flags = [option.flag, *option.aliases] if option.flag else []
    variables = [option.env, *option.env_aliases] if option.env else []
    return "<br>".join(f"`{name}`" for name in [*flags, *variables])


def _default(option: Option) -> str:
    others = "".join(f"; {engine}: {_written(option, value)}" for engine, value in option.engine_defaults)
    if option.default_text or option.default is None:
        return (option.default_text or "not set") + others
    return _written(option, option.default) + others


def _written(option: Option, value: Value) -> str:
    return f"`{option.kind.show(value) or 'none'}`"


def _old_spellings() -> Iterator[tuple[str, ...]]:
    for option in OPTIONS:
        yield from ((f"`{old}`", f"`{option.flag}`") for old in option.deprecated_flags)
        yield from ((f"`{old}`", f"`{option.env}`") for old in option.deprecated_envs)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def main(arguments: Sequence[str]) -> None:
    """Write the page to the file named first, or to standard output."""
    if arguments:
        Path(arguments[0]).write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())


if __name__ == "__main__":
    main(sys.argv[1:])
