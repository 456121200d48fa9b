"""A real systemd in namespaces of its own, as their first process: it manages nothing of this machine's.

It gets a copy of the shipped unit. It needs root, namespaces and a hierarchy of control groups.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.deploy.compose_files import REPOSITORY
from tests.deploy.unit_file import PROGRAM as INSTALLED
from tests.deploy.unit_file import UNIT
from tests.e2e.servers import tool
from tests.e2e.stacks import PROGRAM
from tests.e2e.waiting import wait_until
from tests.plugins.require_tools import MAY_BE_FORBIDDEN

# A machine's manager, with nothing of this machine but its files: /run, the cache and the root of control
# groups are its own, and it may not set the kernel's parameters.
_INSIDE = """
set -e
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/cache
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount --bind /proc/sys /proc/sys
mount -o remount,ro,bind /proc/sys
exec "$@"
"""
_NAMESPACES = (
    *("unshare", "--mount", "--cgroup", "--pid", "--uts", "--ipc"),
    *("--fork", "--mount-proc", "--kill-child"),
)
_MANAGE = ("--system", "--unit=basic.target", "--show-status=no")
# What every service depends on, as far as it is asked for here.
_TARGETS = ("sysinit", "basic", "shutdown", "network-online", "multi-user")
# Where the unit puts something else, so that what lies above does not matter.
_REPLACED = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")
_START_S = 30.0
_INSTANCE = "dynamo-actor-worker@0"


class CannotRun(Exception):
    """This machine lets nobody run a manager. Says why."""


class ServiceManager:
    """One manager, and one worker as its instance 0. Raises CannotRun."""

    def __init__(self, folder: Path, environ: Mapping[str, str], program: Sequence[str] = PROGRAM) -> None:
        self._folder = folder
        self._worker = program
        self._programs = {name: tool(name) for name in ("systemd", "systemctl")}
        self._groups = _new_group()
        self._write(environ)
        join = ["bash", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', str(self._groups)]
        manage = ["bash", "-c", _INSIDE, "manager", self._programs["systemd"], *_MANAGE]
        with (folder / "namespaces.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*join, *_NAMESPACES, *manage],
                env=self._environ(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        try:
            self._wait_up()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> ServiceManager:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def drop_in(self, text: str) -> None:
        """As `systemctl edit` would: what is different from the shipped unit."""
        folder = self._folder / "units" / f"{UNIT.name}.d"
        folder.mkdir(exist_ok=True)
        (folder / "test.conf").write_text(f"[Service]\n{text}\n", encoding="utf-8")
        self.ctl("daemon-reload")

    def ctl(self, *words: str, is_ok: bool = True) -> str:
        """What systemctl says; its own failure is an error unless one is expected."""
        inside = ["nsenter", "--target", str(self._first().pid), "--mount", "--cgroup", "--pid"]
        done = subprocess.run(
            [*inside, self._programs["systemctl"], *words],
            env=self._environ(), capture_output=True, text=True, check=False, timeout=180,
        )  # fmt: skip
        assert not is_ok or done.returncode == 0, (done.stdout, done.stderr, self.log())
        return done.stdout + done.stderr

    def begin(self) -> None:
        """Start the worker and do not wait for it."""
        self.ctl("start", "--no-block", _INSTANCE)

    def show(self, name: str) -> str:
        """A property of the worker's unit."""
        return self.ctl("show", "--property", name, "--value", _INSTANCE).strip()

    def wait_for(self, name: str, value: str, timeout_s: float = 60.0) -> None:
        """Until a property begins so."""
        wait_until(
            lambda: self.show(name).startswith(value),
            lambda: (self.all(), self.log()),
            timeout_s,
            every_s=0.1,
        )

    def all(self) -> dict[str, str]:
        """What an operator would look at."""
        names = "ActiveState,SubState,Result,StatusText,NRestarts,ExecMainCode,ExecMainStatus"
        lines = self.ctl("show", "--property", names, _INSTANCE).splitlines()
        return {name: value for name, _, value in (line.partition("=") for line in lines)}

    def status_of_process(self) -> dict[str, str]:
        """Of the worker's, as the kernel has it."""
        inside = ["nsenter", "--target", str(self._first().pid), "--mount", "--pid"]
        words = [*inside, "cat", f"/proc/{self.show('MainPID')}/status"]
        lines = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
        return {
            name: value.strip() for name, _, value in (line.partition(":") for line in lines.splitlines())
        }

    def log(self) -> str:
        """What went wrong on the way there, and what the worker said."""
        files = ("namespaces.log", "worker.log")
        paths = [self._folder / name for name in files]
        return "\n".join(
            path.read_text(encoding="utf-8", errors="replace") for path in paths if path.exists()
        )

    def stop(self) -> None:
        """Whoever is inside dies with the first of them; then the control groups are empty, and go."""
        with suppress(psutil.Error, CannotRun):
            self._first().kill()
        self._process.kill()
        self._process.wait(10)
        wait_until(lambda: _is_removed(self._groups), "processes of the manager are left", 10)

    def _write(self, environ: Mapping[str, str]) -> None:
        program = self._folder / "worker"
        program.write_text(f'#!/bin/sh\nexec {" ".join(self._worker)} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
        units = self._folder / "units"
        (units / f"{UNIT.name}.d").mkdir(parents=True)
        for target in _TARGETS:
            text = f"[Unit]\nDescription={target}\nDefaultDependencies=no\n"
            (units / f"{target}.target").write_text(text, encoding="utf-8")
        text = UNIT.read_text(encoding="utf-8").replace(INSTALLED, str(program))
        text = text.replace("/etc/dynamo-actor-worker", str(self._folder))
        (units / UNIT.name).write_text(text, encoding="utf-8")
        (units / f"{UNIT.name}.d" / "here.conf").write_text(self._here(environ), encoding="utf-8")
        lines = "".join(f"{name}='{value}'\n" for name, value in environ.items())
        (self._folder / "worker.env").write_text("", encoding="utf-8")
        (self._folder / "0.env").write_text(lines, encoding="utf-8")

    def _here(self, environ: Mapping[str, str]) -> str:
        """The worker is not installed in /opt: it sees this checkout, its Python, a model and its folder."""
        model = Path(environ["DYN_TRTLLM_MODEL"])
        seen = [Path(sys.base_prefix), Path(sys.prefix), REPOSITORY, model]
        for path in (model, self._folder, *model.iterdir()):
            # Some libraries write files for their owner alone; the worker's user is nobody's owner.
            path.chmod(0o755)
        for path in (*seen, self._folder):
            _check_others_get_to(path)
        return (
            f"[Service]\nProtectHome=tmpfs\nBindReadOnlyPaths={' '.join(map(str, seen))}\n"
            f"BindPaths={self._folder}\nWorkingDirectory={REPOSITORY}\n"
            f"StandardOutput=append:{self._folder}/worker.log\nStandardError=inherit\n"
        )

    def _environ(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "SYSTEMD_UNIT_PATH": str(self._folder / "units"),
            "SYSTEMD_LOG_TARGET": "null",
            # Of the interface for containers: no consoles, no clock, no modules.
            "container": "test",
        }

    def _wait_up(self) -> None:
        def is_up() -> bool:
            if self._process.poll() is not None:
                raise CannotRun(self.log().strip() or "no namespaces here")
            with suppress(CannotRun):
                return "UNIT" in self.ctl("list-units", is_ok=False)
            return False

        wait_until(is_up, self.log, _START_S, every_s=0.1)

    def _first(self) -> psutil.Process:
        """The first process of the namespace, seen from here."""
        children = psutil.Process(self._process.pid).children()
        if not children:
            raise CannotRun("the namespaces have no process yet")
        return children[0]


def _new_group() -> Path:
    """A control group of the second version, of our own."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        raise CannotRun("no unshare and nsenter (util-linux) here")
    for mount in psutil.disk_partitions(all=True):
        if mount.fstype == "cgroup2":
            group = Path(mount.mountpoint) / f"dynamo-actor-worker-test-{uuid.uuid4().hex[:8]}"
            try:
                group.mkdir()
            except OSError as exc:
                raise CannotRun(f"no control groups of our own here ({exc.strerror})") from exc
            return group
    raise CannotRun("no control groups (version 2) here")


def _check_others_get_to(path: Path) -> None:
    """The worker's user is a stranger to all files here. Raises CannotRun."""
    if path.is_relative_to("/") and not path.as_posix().startswith(_REPLACED):
        for folder in path.parents:
            if not folder.stat().st_mode & stat.S_IXOTH:
                raise CannotRun(f"others may not look into {folder}")


def _is_removed(group: Path) -> bool:
    for folder, _, _ in os.walk(group, topdown=False):
        with suppress(OSError):
            Path(folder).rmdir()
    return not group.exists()


def run_or_skip(folder: Path, environ: Mapping[str, str], program: Sequence[str] = PROGRAM) -> ServiceManager:
    """One that runs; skips the test where none can."""
    try:
        return ServiceManager(folder, environ, program)
    except CannotRun as exc:
        pytest.skip(f"{MAY_BE_FORBIDDEN}: {exc}")
