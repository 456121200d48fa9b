"""The worker where nothing may be written but its cache and its folder of temporary files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from service.models.cache import cache_root
from tests.built_in import built_in_model
from tests.deploy import dockerfile
from tests.e2e.namespaces import skip_without
from tests.e2e.stacks import PROGRAM, Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

# In a namespace of its own: the writable folder is mounted onto itself, then all else becomes read-only.
# Shared memory and /proc are as in a container.
READ_ONLY = """
mount --bind "$1" "$1" && mount -o remount,ro,bind / && mount -t tmpfs tmpfs /dev/shm && shift && exec "$@"
"""
NAMESPACE = (
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "--pid",
    "--fork",
    "--mount-proc",
    "--kill-child",
)


def program(writable: Path, *words: str) -> list[str]:
    """The words, run where only that folder can be written."""
    return [*NAMESPACE, "sh", "-c", READ_ONLY, "sh", str(writable), *words]


@pytest.fixture(scope="module")
def namespaces() -> None:
    """Skips where a process may not have a namespace of its own."""
    skip_without(NAMESPACE, "users and mounts")


@pytest.fixture
def writable(tmp_path: Path) -> Path:
    """A container's home and temporary files."""
    folder = tmp_path / "writable"
    (folder / "home" / ".cache").mkdir(parents=True)
    (folder / "tmp").mkdir()
    return folder


@contextmanager
def in_container(folder: Path, writable: Path, *words: str) -> Iterator[tuple[Stack, psutil.Process]]:
    """A frontend, and a worker with the image's variables on a read-only root: process 1 of its namespace."""
    image = dockerfile.read()[1]["cpu"].environ
    environ = {name: text.replace("/home/dynamo", str(writable / "home")) for name, text in image.items()}
    del environ["PATH"]
    environ |= {"TMPDIR": str(writable / "tmp"), "DYN_FILE_KV": str(writable / "discovery")}
    with Stack(folder, list(words), program=program(writable, *PROGRAM), environ=environ) as stack:
        (process,) = psutil.Process(stack.workers[0].child.pid).children()
        yield stack, process


@pytest.mark.usefixtures("namespaces")
def test_nothing_but_the_named_folder_can_be_written(writable: Path, tmp_path: Path) -> None:
    """What the other test here stands on."""
    for place, code in (
        (writable / "tmp" / "x", 0),
        (tmp_path / "x", 1),
        (Path("/x"), 1),
        (Path.home() / "x", 1),
    ):
        said = subprocess.run(
            program(writable, "touch", str(place)), capture_output=True, text=True, check=False, timeout=20
        )
        assert (said.returncode, place) == (code, place), said.stderr


@pytest.mark.model
@pytest.mark.usefixtures("namespaces")
def test_the_worker_serves_and_drains_on_a_read_only_root(writable: Path, tmp_path: Path) -> None:
    """Also with the process that tries grammars. The model, of an earlier start, is not written either."""
    built_in_model()
    (writable / "home/.cache/dynamo-actor-worker").symlink_to(cache_root(os.environ))
    with in_container(tmp_path / "stack", writable, "--engine", "torch", "--threads", "1") as (
        stack,
        process,
    ):
        status, body = stack.chat("What is the capital of France?", max_tokens=12)
        assert status == 200, body
        assert "Paris" in body["choices"][0]["message"]["content"]
        status, body = stack.chat("Yes or no?", guided_choice=["yes", "no"], max_tokens=4)
        assert status == 200, body
        process.terminate()
        assert stack.workers[0].child.wait(60) == 0, stack.workers[0].log()
