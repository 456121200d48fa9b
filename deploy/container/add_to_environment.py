"""Add the worker's wheel to an environment that belongs to somebody else, and change nothing there.

python add_to_environment.py [--preferred LOCK] WHEEL

The base image has solved its set of packages around TensorRT-LLM. So only packages that are not there are
installed, each without what it depends on, in versions that go with those that are there; of all that would
do, those of the lock file. Ends with 1, and the reason a line, when a package that is there is too old or
too new for the worker, or when afterwards anything that was there has another version, or something is still
missing.
"""

from __future__ import annotations

import argparse
import email
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version


class Refused(Exception):
    """It cannot be done without changing what is there. The text has a line for each reason."""


def versions(path: Sequence[str]) -> dict[str, str]:
    """What is installed there, by canonical name; of two of a name the one that is imported."""
    found: dict[str, str] = {}
    for distribution in metadata.distributions(path=list(path)):
        # Packages of a Linux distribution may have a folder of metadata with nothing in it.
        if "Name" in distribution.metadata:
            found.setdefault(canonicalize_name(distribution.metadata["Name"]), distribution.version)
    return found


def applicable(lines: Iterable[str]) -> list[Requirement]:
    """Requirements that hold on this machine, without those of extras."""
    requirements = [Requirement(line) for line in lines]
    return [one for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})]


def wheel_name(wheel: Path) -> str:
    """The canonical name of the distribution in a wheel."""
    return canonicalize_name(wheel.name.split("-")[0])


def wheel_requirements(wheel: Path) -> list[Requirement]:
    """What a wheel needs."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        fields = email.message_from_bytes(archive.read(name))
    return applicable(fields.get_all("Requires-Dist", []))


def is_version(text: str) -> bool:
    """Whether it is one by Python's rules; packages of a distribution's own may have others."""
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def unfit(requirements: Iterable[Requirement], here: Mapping[str, str]) -> list[str]:
    """Of what is there, what does not do."""
    return [
        f"{one.name} {here[canonicalize_name(one.name)]} is there, needed is {one.name}{one.specifier}"
        for one in requirements
        if canonicalize_name(one.name) in here and not fits(one, here[canonicalize_name(one.name)])
    ]


def fits(requirement: Requirement, version: str) -> bool:
    """Whether that version does; previews count, as bases of GPUs come with previews of torch."""
    return is_version(version) and requirement.specifier.contains(version, prereleases=True)


def missing(requirements: Iterable[Requirement], here: Mapping[str, str]) -> list[Requirement]:
    """What is not there at all."""
    return [one for one in requirements if canonicalize_name(one.name) not in here]


def chosen(uv: str, wanted: Sequence[Requirement], here: Mapping[str, str], preferred: str) -> list[str]:
    """Pins of what has to be added: it and what it needs, all of it going with what is there.

    preferred: the text of a lock file; uv keeps its pins where they go with the rest.
    """
    with tempfile.TemporaryDirectory() as folder:
        needed, there, pins = (Path(folder) / name for name in ("needed.in", "there.txt", "pins.txt"))
        needed.write_text("".join(f"{one}\n" for one in wanted), encoding="utf-8")
        known = [f"{name}=={version}\n" for name, version in here.items() if is_version(version)]
        there.write_text("".join(known), encoding="utf-8")
        pins.write_text(preferred, encoding="utf-8")
        words = [
            "pip",
            "compile",
            "--quiet",
            "--no-cache",
            "--no-header",
            "--no-annotate",
            "--no-strip-markers",
        ]
        run(
            uv,
            *words,
            "--python",
            sys.executable,
            "--constraint",
            str(there),
            "--output-file",
            str(pins),
            str(needed),
        )
        lines = [line.strip() for line in pins.read_text(encoding="utf-8").splitlines() if "==" in line]
    return [line for line in lines if canonicalize_name(Requirement(line).name) not in here]


def run(*words: str) -> None:
    """One command; its own words go to standard error. Raises Refused when it fails."""
    if subprocess.run(words, check=False, stdout=sys.stderr).returncode != 0:
        raise Refused(f"uv {words[1]} {words[2]} failed; its words are above")


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """What was there and is not as it was."""
    return [
        f"{name} was {version} and is {after.get(name, 'gone')}"
        for name, version in sorted(before.items())
        if after.get(name) != version
    ]


def lacking(names: Iterable[str], path: Sequence[str]) -> list[str]:
    """What these distributions still need: missing or unfit."""
    here = versions(path)
    found: list[str] = []
    for name in sorted(names):
        (distribution, *_) = metadata.distributions(name=name, path=list(path))
        needs = applicable(distribution.requires or [])
        found += [f"{one} is missing for {name}" for one in missing(needs, here)]
        found += [f"for {name}: {text}" for text in unfit(needs, here)]
    return found


def refuse(reasons: Sequence[str]) -> None:
    """Raises Refused when there are any."""
    if reasons:
        raise Refused("\n".join(reasons))


def add(wheel: Path, preferred: str, path: Sequence[str], uv: str = "uv") -> list[str]:
    """Install it; the pins of what was added. Raises Refused."""
    before = versions(path)
    requirements = wheel_requirements(wheel)
    refuse(unfit(requirements, before))
    wanted = missing(requirements, before)
    pins = chosen(uv, wanted, before, preferred) if wanted else []
    run(uv, "pip", "install", "--no-cache", "--no-deps", "--python", sys.executable, *pins, str(wheel))
    after = versions(path)
    refuse(changed(before, after))
    refuse(lacking(after.keys() - before.keys(), path))
    if wheel_name(wheel) not in after:
        raise Refused(f"{wheel.name} was not installed")
    return pins


def main(words: Sequence[str]) -> int:
    """For the command line."""
    parser = argparse.ArgumentParser(
        description="Add a wheel to an environment without changing what is there."
    )
    parser.add_argument("--preferred", type=Path, help="a lock file whose versions are preferred")
    parser.add_argument("wheel", type=Path)
    given = parser.parse_args(words)
    preferred = given.preferred.read_text(encoding="utf-8") if given.preferred else ""
    try:
        pins = add(given.wheel, preferred, sys.path)
    except Refused as exc:
        for line in str(exc).splitlines():
            sys.stderr.write(f"add_to_environment: {line}\n")
        return 1
    sys.stdout.write("".join(f"added {pin}\n" for pin in [*pins, given.wheel.name]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
