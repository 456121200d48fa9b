"""The sub-command ``model NAME``: prepare a model now, so that no start has to."""

import sys
from collections.abc import Sequence

from service.exit_codes import ExitCode
from service.models.catalogue import BUILT_IN_MODELS
from service.models.errors import ModelError
from service.models.resolution import resolve_model

USAGE = f"""\
usage: dynamo-actor-worker model [--offline] NAME

Gets the files of a model onto this machine and prints their folder as the last line.
NAME        {", ".join(BUILT_IN_MODELS)}, the folder of a Hugging Face model, or a hub id (org/name)
--offline   fetch nothing: say where the model is, or that it is not here
"""


def model_command(argv: Sequence[str]) -> int:
    """Run it; returns 0, 2 (wrong name or files, wrong usage) or 69 (it cannot be had now)."""
    if {"--help", "-h"} & set(argv):
        sys.stdout.write(USAGE)
        return ExitCode.PLANNED
    names = [word for word in argv if word != "--offline"]
    if len(names) != 1 or names[0].startswith("-"):
        sys.stderr.write(
            f"dynamo-actor-worker: model: expected one NAME, got {' '.join(argv) or 'nothing'}\n{USAGE}"
        )
        return ExitCode.CONFIGURATION
    return prepare_command(names[0], offline="--offline" in argv)


def prepare_command(name: str, *, offline: bool = False) -> int:
    """Get one model; its folder is the only line on standard output."""
    try:
        resolved = resolve_model(name, offline=offline)
    except ModelError as exc:
        sys.stderr.write(f"dynamo-actor-worker: {exc}\n")
        return exc.exit_code
    print(resolved.path)  # noqa: T201 - the command's result
    return ExitCode.PLANNED
