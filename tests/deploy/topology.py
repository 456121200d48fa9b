"""The compose files run without containers: their own commands and variables, each service one process here.

What differs between a container and a process of this machine stands in ``_places`` and nowhere else: host
names and ports, folders, and programs that images bring along. A word that still means a place of a container
after that fails the start.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from service.demo.client import Client
from service.demo.processes import Child, free_port
from service.models.cache import cache_root
from tests.deploy import compose_files, dockerfile
from tests.deploy.compose_files import DEPLOY, Service
from tests.deploy.places import Places
from tests.e2e.servers import tool, wait_listening
from tests.e2e.waiting import wait_until

_READY_S = 180.0
# What the shell would hold that runs compose.
_SHELL = {"DYN_ACTOR_CONTROL_TOKEN": "only-for-this-test"}
# Each service's port in its container.
_PORTS = {"etcd": 2379, "nats": 4222, "frontend": 8000, "worker": 8081, "prometheus": 9090}
_OUR_IMAGE = "dynamo-actor-worker:"
# Containers ask their network which address they have; processes of one machine are told.
_INSTEAD_OF_A_NETWORK = {"DYN_TCP_RPC_HOST": "127.0.0.1"}


class Topology:
    """Etcd, frontend, worker and Prometheus as the two compose files start them, without their images."""

    def __init__(self, folder: Path, collector: str) -> None:
        self._folder = folder
        self.services = compose_files.services([compose_files.BASE, compose_files.OBSERVABILITY], _SHELL)
        self._image = dockerfile.read()[1]["cpu"]
        self._ports = _free_ports("peer", *_PORTS)
        self._places = {name: _places(folder / name, self._ports, collector) for name in _PORTS}
        self._children: dict[str, Child] = {}
        self.frontend = Client(self._ports["frontend"])
        self.worker = Client(self._ports["worker"])
        self.prometheus = Client(self._ports["prometheus"])

    def __enter__(self) -> Topology:
        try:
            self._lay_out()
            self._start("etcd")
            wait_listening(self._ports["etcd"])
            for name in ("frontend", "worker", "prometheus"):
                self._start(name)
                self._wait_healthy(name)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """In compose's order: who waits for others goes before them. By their own pids."""
        for name in reversed(self._children):
            self._children[name].ask_to_stop()
            self._children[name].wait(30)

    def is_healthy(self, name: str) -> bool:
        """What the service's own health check says; it runs as in its container."""
        assert self._children[name].exit_code is None, self.log(name)
        health = self.services[name].health
        assert health is not None
        if health.words[0] == "wget":
            # Of the image of Prometheus; here the other script asks the same address.
            return self.run_in("worker", [*_health_check(self), health.words[-1]]).returncode == 0
        return self.run_in(name, health.words).returncode == 0

    def run_in(self, name: str, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """As ``docker compose exec``: a command with the variables of that service."""
        return subprocess.run(
            self._here(name, words),
            env=self._environ(self.services[name]),
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def log(self, name: str) -> str:
        """Everything that it said."""
        return self._children[name].log.read_text(encoding="utf-8", errors="replace")

    def address(self, name: str) -> str:
        """Where a service listens here."""
        return f"127.0.0.1:{self._ports[name]}"

    def cache(self, name: str) -> Path:
        """The folder that a service's image has its caches in: each service has its own."""
        return self._folder / name / "home" / ".cache"

    def _wait_healthy(self, name: str) -> None:
        wait_until(lambda: self.is_healthy(name), lambda: self.log(name), _READY_S, every_s=0.1)

    def _start(self, name: str) -> None:
        service = self.services[name]
        argv = self._here(name, [*self._own_program(service), *service.argv])
        self._children[name] = Child(name, argv, self._environ(service), self._folder / f"{name}.log")

    def _own_program(self, service: Service) -> list[str]:
        """What the image starts, where the compose file gives only words for it."""
        if service.image.startswith(_OUR_IMAGE):
            return [] if "entrypoint" in service.raw else self._image.entrypoint
        return ["prometheus"] if service.name == "prometheus" else []

    def _here(self, name: str, words: Sequence[str]) -> list[str]:
        return [_program(words[0]), *(self._places[name].here(word) for word in words[1:])]

    def _environ(self, service: Service) -> dict[str, str]:
        """Of the image, then of compose; nothing of whoever runs the test but the way to its programs."""
        image: Mapping[str, str] = {}
        if service.image.startswith(_OUR_IMAGE):
            image = {**self._image.environ, **_INSTEAD_OF_A_NETWORK}
        given = {**image, **service.environ(_SHELL)}
        places = self._places[service.name]
        here = {name: places.here(text) for name, text in given.items() if name != "PATH"}
        return {**here, "PATH": os.environ["PATH"]}

    def _lay_out(self) -> None:
        """The folders that mounts and images would be."""
        for name in _PORTS:
            for folder in ("home/.cache", "data", "etc"):
                (self._folder / name / folder).mkdir(parents=True)
        # The named volume, as an earlier start has left it.
        self.cache("worker").joinpath("dynamo-actor-worker").symlink_to(cache_root(os.environ))
        places = self._places["prometheus"]
        for mount in self.services["prometheus"].mounts:
            if mount.path is not None and mount.path.name != "targets":
                Path(places.here(mount.target)).symlink_to(mount.path)
        targets = self._folder / "prometheus" / "etc" / "targets"
        targets.mkdir()
        for path in (DEPLOY / "observability" / "targets").glob("*.yml"):
            text = places.here(path.read_text(encoding="utf-8"))
            (targets / path.name).write_text(text, encoding="utf-8")


def _health_check(topology: Topology) -> list[str]:
    health = topology.services["worker"].health
    assert health is not None
    return list(health.words)


def _program(name: str) -> str:
    """Of this environment, or one of the tools."""
    if name == "python":
        return sys.executable
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else tool(name)


def _places(folder: Path, ports: Mapping[str, int], collector: str) -> Places:
    hosts = {
        f"{host}:{theirs}": f"127.0.0.1:{ports[name]}"
        for name, theirs in _PORTS.items()
        for host in (name, "0.0.0.0", "127.0.0.1")
    }
    folders = {
        "/tmp/etcd": folder / "data",
        "/home/dynamo": folder / "home",
        "/etc/prometheus": folder / "etc",
        "/prometheus": folder / "data",
        "/opt/dynamo-actor-worker/healthcheck.py": DEPLOY / "container" / "healthcheck.py",
    }
    inside = {
        **hosts,
        "127.0.0.1:2380": f"127.0.0.1:{ports['peer']}",
        "http://otel-collector:4317": collector,
        **{theirs: str(ours) for theirs, ours in folders.items()},
    }
    whole = {"0.0.0.0": "127.0.0.1", "8000": str(ports["frontend"]), "8081": str(ports["worker"])}
    foreign = ["0.0.0.0", "otel-collector", "/opt/", "/etc/", "/home/", *(f"//{name}:" for name in _PORTS)]
    return Places(whole, inside, foreign)


def _free_ports(*names: str) -> dict[str, int]:
    ports: dict[str, int] = {}
    for name in names:
        ports[name] = free_port(frozenset(ports.values()))
    return ports
