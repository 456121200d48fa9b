"""The cache of prepared models: one folder a model, complete or not there, made by one process at a time.

A folder is filled under another name, gets a marker with the sizes and checksums of its files, and is then
renamed into place. So a folder without a sound marker does not count, and an interrupt at any moment leaves
only a work folder, which the next holder of the lock removes.
"""

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from service.models.errors import ModelUnavailable
from service.models.progress import ProgressDisplay
from service.models.wheel import sha256_of

MARKER = ".prepared.json"
REHASHED_BYTES = 8 << 20
"""Files up to this size are checked by checksum at every start (some milliseconds), larger ones by size."""


def cache_root(environ: Mapping[str, str]) -> Path:
    """Return the folder that holds all prepared models: DYN_ACTOR_CACHE_DIR, or the user's cache."""
    if own := environ.get("DYN_ACTOR_CACHE_DIR"):
        return Path(own).expanduser().absolute()
    # The XDG rules say that a relative path there is to be ignored.
    shared = Path(environ.get("XDG_CACHE_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "dynamo-actor-worker"


def is_complete(folder: Path) -> bool:
    """Say whether `folder` is a prepared model whose files are those that were written."""
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        return bool(marker["files"]) and all(
            is_unchanged(folder / name, entry) for name, entry in marker["files"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def is_unchanged(file: Path, entry: Mapping[str, Any]) -> bool:
    """Compare a file with its entry in the marker."""
    size_bytes = file.stat().st_size
    return size_bytes == entry["bytes"] and (
        size_bytes > REHASHED_BYTES or sha256_of(file) == entry["sha256"]
    )


def write_marker(folder: Path) -> None:
    """Write the marker over everything in `folder`, after all of it has reached the disk."""
    files: dict[str, dict[str, int | str]] = {}
    for file in sorted(folder.iterdir()):
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
        files[file.name] = {"bytes": file.stat().st_size, "sha256": sha256_of(file)}
    with (folder / MARKER).open("w", encoding="utf-8") as stream:
        json.dump({"files": files}, stream, indent=2)
        stream.flush()
        os.fsync(stream.fileno())


def put_in_place(filled: Path, folder: Path, work: Path) -> None:
    """Mark `filled` as complete and name it `folder`; what lies there and does not count goes to `work`."""
    write_marker(filled)
    if folder.exists():
        folder.rename(work / "replaced")
    filled.rename(folder)


@contextmanager
def exclusive(folder: Path, progress: ProgressDisplay) -> Generator[None]:
    """Hold the lock of `folder`'s name; another process that holds it is waited for, and that is said.

    The kernel gives the lock back when its holder ends, however it ends.
    """
    with folder.with_name(f"{folder.name}.lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say(f"another process is preparing {folder.name}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def work_folder(folder: Path) -> Generator[Path]:
    """Give a scratch folder beside `folder`, on the same file system; call with the lock held.

    What an interrupted run left behind is removed first.
    """
    prefix = f"{folder.name}.work-"
    for left in folder.parent.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder.parent, ignore_cleanup_errors=True) as scratch:
        yield Path(scratch)


def require_space(name: str, root: Path, needed_bytes: int) -> None:
    """Raise ModelUnavailable when the cache's disk has less than `needed_bytes` free."""
    free_bytes = shutil.disk_usage(root).free
    if free_bytes < needed_bytes:
        raise ModelUnavailable(
            name,
            f"it takes {needed_bytes // 1_000_000} MB in {root}, {free_bytes // 1_000_000} MB are free",
            "make room, or name another folder in DYN_ACTOR_CACHE_DIR",
        )
