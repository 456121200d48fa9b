"""Make or refresh the virtual environment of this checkout: ``make setup``.

Runs on the system's Python, so it imports the standard library only. When nothing changed it does nothing: a
stamp in the environment holds a checksum of what was installed. It is removed first and written last, so an
environment without one is what an interrupted run left, and the next run starts from an empty one (downloads
stay in pip's cache).
"""

import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
LOCK = Path("requirements") / "dev.txt"
# Measured with pip 23.2 and the CPU build of torch 2.13.0 on x86_64 (the CUDA build adds its libraries).
SIZE = (
    "about 470 MB of downloads, 1.8 GB on disk with a CPU build of torch; several GB more with a CUDA build"
)
HINT = "To choose another build of torch, point pip at its index (environment variable PIP_EXTRA_INDEX_URL)."
# pip's own lines worth showing: what it works on, and only the files large enough to be waited for.
LARGE_DOWNLOAD = re.compile(r"Downloading (\S+) \((\d{2,} MB|[\d.]+ GB)\)")


def fingerprint(root: Path) -> str:
    """Return a checksum over everything that decides what is installed: lock, project, interpreter."""
    digest = hashlib.sha256(f"{sys.executable} {sys.version}".encode())
    digest.update((root / LOCK).read_bytes())
    project_file = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    for table in ("build-system", "project"):  # the rest of the file is the settings of tools
        digest.update(json.dumps(project_file[table], sort_keys=True).encode())
    return digest.hexdigest()


@contextmanager
def only_one_setup(root: Path) -> Generator[None]:
    """Hold a lock on the checkout's folder itself: it leaves no file and ends with the process."""
    folder = os.open(root, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("setup: another setup of this checkout is running; waiting for it", flush=True)
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def pip(venv: Path, *arguments: str) -> None:
    """Run the environment's pip; raises SystemExit with pip's status and its last lines when it fails."""
    command = [str(venv / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", *arguments]
    tail: list[str] = []
    packages = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            tail = [*tail[-30:], line]
            packages += line.startswith(("Collecting ", "Processing "))
            show_progress(line, packages)
    if process.returncode != 0:
        sys.stdout.write("".join(tail))
        raise SystemExit(f"setup: pip failed with status {process.returncode}; its last lines are above")


def show_progress(line: str, packages: int) -> None:
    """Turn one line of pip into at most one line for the reader; a terminal sees the package counter move."""
    large = LARGE_DOWNLOAD.search(line)
    if large is not None:
        print(f"setup: downloading {large[1]} ({large[2]})", flush=True)
    elif line.startswith("Installing collected packages") and packages:
        print(f"setup: unpacking {packages} packages", flush=True)
    elif sys.stdout.isatty() and packages:
        print(f"setup: {packages} packages found", end="\r", flush=True)


def install(root: Path, venv: Path) -> None:
    """Fill `venv` from the lock, then put the project itself in, editable."""
    # --no-compile: byte code is made at first import, for what is imported; for everything it takes a minute.
    pip(venv, "install", "--progress-bar=off", "--no-compile", "-r", str(root / LOCK))
    pip(venv, "install", "--progress-bar=off", "--no-deps", "--no-build-isolation", "-e", str(root))
    pip(venv, "check")


def set_up(root: Path) -> None:
    """Bring `root`/.venv to the state the lock describes; do nothing when it is there already."""
    venv = root / ".venv"
    stamp = venv / ".setup-done"
    wanted = fingerprint(root)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return
    if stamp.is_file():
        print(f"setup: the lock or the project changed; fetching what is new in {LOCK}", flush=True)
        stamp.unlink()
    else:
        if venv.exists():
            print(
                f"setup: {venv.name} was not finished by an earlier run; starting with an empty one",
                flush=True,
            )
        print(f"setup: making {venv.name} with Python {sys.version.split()[0]}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
        print(f"setup: installing {LOCK} from your package index: {SIZE}.\nsetup: {HINT}", flush=True)
    install(root, venv)
    stamp.write_text(wanted, encoding="utf-8")
    print("setup: done; next: make demo", flush=True)


if __name__ == "__main__":
    try:
        with only_one_setup(REPOSITORY):
            set_up(REPOSITORY)
    except KeyboardInterrupt:
        raise SystemExit("setup: interrupted; make setup starts it again") from None
