"""Promises about the committed files: they hold on every machine."""

import re
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
LOCKS = ("requirements/lock.txt", "requirements/dev.txt")
PIN = re.compile(r"^[a-z0-9][a-z0-9-]*==[0-9][a-z0-9.]*$")
HOME_FOLDER = r"(?:^|[\s\"'=(:])/(?:home|Users|root)/(?!dynamo\b|user\b|you\b)[A-Za-z0-9_.-]+"
CHECKOUT = r"file:///(?:home|root|opt|work|srv|mnt|Users)\b|\.\./shared\b"
INDEX = r"--(?:extra-)?index-url[ =]\S+|--(?:find-links|trusted-host|registry)[ =]\S+|https?://\S+/simple\b"
MACHINE_BOUND = re.compile("|".join((HOME_FOLDER, CHECKOUT, INDEX)), re.MULTILINE)


def committed_files() -> list[Path]:
    """Return the files git knows, as they are in the working tree; skip in an unpacked sdist."""
    if not (REPOSITORY / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, check=True, capture_output=True, text=True
    )
    return [REPOSITORY / name for name in listed.stdout.split("\0") if name and (REPOSITORY / name).is_file()]


def pins_of(lock: str) -> dict[str, str]:
    """Return package -> version of a lock file, refusing every line that is not a plain pin."""
    pins: dict[str, str] = {}
    for line in (REPOSITORY / lock).read_text(encoding="utf-8").splitlines():
        requirement = line.partition("#")[0].strip()
        if requirement:
            assert PIN.match(requirement), f"{lock}: {requirement!r} is not a plain name==version"
            name, _, version = requirement.partition("==")
            pins[name] = version
    return pins


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_plain_pins_only(lock: str) -> None:
    """No index, host, path or local version of one machine is in a lock file."""
    assert pins_of(lock)["torch"] == "2.13.0"


def test_both_locks_agree() -> None:
    """Developers run the very versions that images install."""
    runtime, dev = (pins_of(lock) for lock in LOCKS)
    assert runtime.items() <= dev.items()


def test_no_committed_file_is_bound_to_one_machine() -> None:
    """No committed text names a home folder, a checkout by file URL, or a package index."""
    offending = [
        f"{file.relative_to(REPOSITORY)}: {found[0].strip()}"
        for file in committed_files()
        if file != Path(__file__) and b"\0" not in (data := file.read_bytes())
        for found in MACHINE_BOUND.finditer(data.decode("utf-8"))
    ]
    assert offending == []


@pytest.mark.parametrize(
    "text",
    [
        "cd /home/alice/src",
        "path = '/Users/bob/x'",
        "--index-url https://x",
        "file:///opt/x",
        "https://mirror.example/simple",
        "see ../" + "shared/a.md",
    ],
)
def test_the_pattern_finds_what_it_is_for(text: str) -> None:
    """Each kind of machine-bound text is recognised."""
    assert MACHINE_BOUND.search(text)


def test_scripts_are_valid_shell() -> None:
    """Every shell script parses."""
    scripts = [file for file in committed_files() if file.suffix == ".sh" or file.parent.name == ".ci"]
    assert scripts
    for script in scripts:
        subprocess.run(["bash", "-n", str(script)], check=True, capture_output=True)
