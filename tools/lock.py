"""Write the lock files from pyproject.toml and requirements/pins.in: ``make lock``.

``requirements/lock.txt`` is what the daemon needs (images install it); ``requirements/dev.txt`` is the same
plus what developers and CI need (``make setup`` installs it).
"""

import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
REQUIREMENTS = REPOSITORY / "requirements"
HEADER = """\
# Written by `make lock` from pyproject.toml and requirements/pins.in: do not edit.
# No hashes: `torch` may be any build of its version (CPU, CUDA), and each build is a different file.
"""
PIP_COMPILE = (
    "piptools",
    "compile",
    "--quiet",
    "--allow-unsafe",  # setuptools is a requirement of torch like any other
    "--strip-extras",
    "--no-header",
    "--annotation-style=line",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--no-emit-trusted-host",
    "--pip-args=--disable-pip-version-check",
)
# "2.13.0+cpu" names one build of 2.13.0, the one this machine happened to choose.
LOCAL_VERSION = re.compile(r"^(\S+==[^\s+]+)\+\S+", re.MULTILINE)


def compile_lock(output: Path, *arguments: str) -> None:
    """Run pip-compile into `output`; an existing file keeps its versions unless `arguments` say --upgrade."""
    relative = output.relative_to(REPOSITORY)
    command = [sys.executable, "-m", *PIP_COMPILE, *arguments, "-o", str(relative), "pyproject.toml"]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    pins = LOCAL_VERSION.sub(r"\1", output.read_text(encoding="utf-8"))
    output.write_text(HEADER + pins, encoding="utf-8")


def main() -> None:
    """Write both files; the arguments go on to pip-compile (``--upgrade``, ``--upgrade-package NAME``)."""
    lock = REQUIREMENTS / "lock.txt"
    compile_lock(lock, "-c", "requirements/pins.in", *sys.argv[1:])
    compile_lock(REQUIREMENTS / "dev.txt", "--extra", "dev", "-c", "requirements/lock.txt", *sys.argv[1:])
    print(f"wrote {lock.relative_to(REPOSITORY)} and requirements/dev.txt")


if __name__ == "__main__":
    main()
