"""Where the services of the compose files listen in their containers, by their own words and files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests.deploy import compose_files, dockerfile
from tests.deploy.compose_files import BASE, DEPLOY, FOLDER, OBSERVABILITY, Service
from tests.deploy.worker_settings import ON_CPU, settings_of

# Every address of the container: others reach it at its name.
EVERYWHERE = "0.0.0.0"
SERVICES = compose_files.services([BASE, OBSERVABILITY, FOLDER / "compose.nats.yaml"])
COLLECTOR = DEPLOY / "observability" / "otel-collector.yaml"
# Which of the collector's protocols the variable of OpenTelemetry means.
_PROTOCOLS = {"grpc": "grpc", "http/protobuf": "http"}


@dataclass(frozen=True, slots=True)
class Listener:
    """One port of a service, and at which of its container's addresses it is open."""

    host: str
    port: int


def value_of(service: Service, flag: str) -> str:
    """Of ``--flag=VALUE``, or of the two words ``--flag VALUE``."""
    for position, word in enumerate(service.argv):
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
        if word == flag:
            return service.argv[position + 1]
    raise LookupError(f"{service.name} is given no {flag}")


def environ_of(service: Service) -> dict[str, str]:
    """What its process sees: the variables of our image, where it is ours, then those of compose."""
    image = dockerfile.read()[1]["cpu"].environ if "build" in service.raw else {}
    return {**image, **service.environ({})}


def listeners(name: str) -> set[Listener]:
    """All of a service. Raises KeyError for one of which nothing is known here."""
    return set(_BY_SERVICE[name](SERVICES[name]))


def collector_port(environ: Mapping[str, str]) -> int:
    """Where the collector takes what a process with these variables sends."""
    protocol = _PROTOCOLS[environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]
    return _at(_load(COLLECTOR)["receivers"]["otlp"]["protocols"][protocol]["endpoint"]).port


def _load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _at(address: str) -> Listener:
    """Of host:port, with or without a scheme."""
    parts = urlsplit(address if "//" in address else f"//{address}")
    assert parts.port is not None, address
    return Listener(parts.hostname or EVERYWHERE, parts.port)


def _etcd(service: Service) -> Iterable[Listener]:
    """For clients; at its other port etcds speak to each other."""
    return map(_at, value_of(service, "--listen-client-urls").split(","))


def _nats(service: Service) -> Iterable[Listener]:
    (mount,) = service.mounts
    assert mount.path is not None
    said = dict(re.findall(r"^(\w+): *(\S+)$", mount.path.read_text(encoding="utf-8"), re.MULTILINE))
    assert "listen" not in said, "nothing here follows it"
    yield Listener(said.get("host", EVERYWHERE), int(said["port"]))


def _frontend(service: Service) -> Iterable[Listener]:
    yield Listener(value_of(service, "--http-host"), int(value_of(service, "--http-port")))


def _worker(service: Service) -> Iterable[Listener]:
    runtime = settings_of(service.argv, environ_of(service), ON_CPU).runtime
    yield Listener(runtime.system_host, runtime.system_port)


def _prometheus(service: Service) -> Iterable[Listener]:
    yield _at(value_of(service, "--web.listen-address"))


def _tempo(_service: Service) -> Iterable[Listener]:
    said = _load(DEPLOY / "observability" / "tempo.yaml")
    server, protocols = said["server"], said["distributor"]["receivers"]["otlp"]["protocols"]
    yield Listener(server.get("http_listen_address", EVERYWHERE), server["http_listen_port"])
    yield from (_at(protocol["endpoint"]) for protocol in protocols.values())


def _collector(_service: Service) -> Iterable[Listener]:
    protocols = _load(COLLECTOR)["receivers"]["otlp"]["protocols"]
    return (_at(protocol["endpoint"]) for protocol in protocols.values())


def _grafana(service: Service) -> Iterable[Listener]:
    """Its own defaults: every address, port 3000."""
    environ = service.environ({})
    host = environ.get("GF_SERVER_HTTP_ADDR", EVERYWHERE)
    yield Listener(host, int(environ.get("GF_SERVER_HTTP_PORT", "3000")))


_BY_SERVICE: Mapping[str, Callable[[Service], Iterable[Listener]]] = {
    "etcd": _etcd,
    "nats": _nats,
    "frontend": _frontend,
    "worker": _worker,
    "prometheus": _prometheus,
    "tempo": _tempo,
    "otel-collector": _collector,
    "grafana": _grafana,
}
