"""From what the operator wrote as ``--model`` to a folder on this machine."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from service.models import cache
from service.models.catalogue import BUILT_IN_MODELS, BuiltInModel
from service.models.errors import ModelInvalid, ModelUnavailable
from service.models.folder import require_model_files
from service.models.hub import fetch_from_hub
from service.models.preparation import Steps, prepare
from service.models.progress import ProgressDisplay, progress_on_stderr
from service.options.nearest import is_near_miss

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model whose files are here."""

    path: Path
    served_name: str
    """The name that clients use, unless the operator gives another one."""
    source: Literal["built-in", "folder", "hub"]


def resolve_model(
    name: str, *, offline: bool = False, progress: ProgressDisplay | None = None
) -> ResolvedModel:
    """Return the folder of a built-in alias, a local folder or a hub id, in this order of precedence.

    Blocks, minutes for a large download. offline: nothing is fetched. progress: standard error by default.
    Raises ModelInvalid (the name or the files are wrong) or ModelUnavailable (something outside is missing).
    """
    shown = progress if progress is not None else progress_on_stderr()
    built_in = BUILT_IN_MODELS.get(name)
    if built_in is not None:
        return ResolvedModel(built_in_folder(built_in, shown, offline=offline), name, "built-in")
    folder = Path(name).expanduser()
    if folder.is_dir():
        require_model_files(name, folder)
        return ResolvedModel(folder.resolve(), folder.resolve().name, "folder")
    if not HUB_ID.fullmatch(name):
        raise ModelInvalid(name, what_it_is_not(name), suggestion(name))
    return ResolvedModel(fetch_from_hub(name, shown, offline=offline), name, "hub")


def is_prepared(alias: str) -> bool:
    """Say whether a built-in model is ready in the cache; raises KeyError for another name."""
    return cache.is_complete(cache.cache_root(os.environ) / BUILT_IN_MODELS[alias].folder_name)


def built_in_folder(model: BuiltInModel, progress: ProgressDisplay, *, offline: bool) -> Path:
    """Return the prepared folder; offline it must be there already."""
    root = cache.cache_root(os.environ)
    if offline and not cache.is_complete(root / model.folder_name):
        raise ModelUnavailable(
            model.alias,
            f"it is not prepared in {root} and nothing is fetched offline",
            f"run `dynamo-actor-worker model {model.alias}` with network once",
        )
    return prepare(model, root, progress, Steps())


def what_it_is_not(name: str) -> str:
    """Say what was looked for."""
    if Path(name).exists():
        return "it is a file, not a folder"
    return f"there is no such folder (looked for {Path(name).expanduser().absolute()})"


def suggestion(name: str) -> str:
    """Name the alias that was probably meant, or all that can be written."""
    for alias in BUILT_IN_MODELS:
        if is_near_miss(name.lower(), alias) or name.lower() == alias:
            return f"did you mean {alias}?"
    return f"allowed are {', '.join(BUILT_IN_MODELS)}, a folder in Hugging Face's format, a hub id (org/name)"
