"""The addresses in the files of compose: whoever is asked listens there, where the asker can reach it."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest

from tests.deploy.compose_files import DEPLOY
from tests.deploy.listening import EVERYWHERE, SERVICES, Listener, collector_port, environ_of, listeners

FILES = sorted(
    file
    for folder in ("compose", "observability")
    for file in (DEPLOY / folder).rglob("*")
    if file.suffix in (".yaml", ".yml") and not {"k8s", "rules"} & set(file.parts)
)
# HOST:PORT; an image's version begins with one number, too.
ADDRESS = re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, SERVICES))}):(\d+)(?![\d.])")
OURS = ("frontend", "worker")


def asked() -> list[tuple[str, str, int]]:
    """(file, service, port) of each address of a service that is written anywhere; comments are none."""
    found: list[tuple[str, str, int]] = []
    for file in FILES:
        lines = [line.partition("# ")[0] for line in file.read_text(encoding="utf-8").splitlines()]
        found += [(file.name, name, int(port)) for name, port in ADDRESS.findall("\n".join(lines))]
    return found


@pytest.mark.parametrize(("file", "name", "port"), sorted(set(asked())))
def test_who_is_asked_listens_for_other_containers(file: str, name: str, port: int) -> None:
    """At that port, and at every address of its container: its loopback is nobody else's."""
    assert Listener(EVERYWHERE, port) in listeners(name), file


def test_the_addresses_are_found() -> None:
    """Of each service that another one asks; nobody asks Grafana."""
    assert {name for _, name, _ in asked()} == SERVICES.keys() - {"grafana"}


@pytest.mark.parametrize("name", list(SERVICES))
def test_what_is_published_is_open_in_the_container(name: str) -> None:
    """The engine comes from the container's network, so the loopback in it is closed to a browser."""
    published = {Listener(EVERYWHERE, port.inside) for port in SERVICES[name].ports}
    assert published <= listeners(name)


@pytest.mark.parametrize("name", [name for name, service in SERVICES.items() if service.health is not None])
def test_a_health_check_asks_where_its_own_service_listens(name: str) -> None:
    """On the loopback of its container, which every address includes. Without one it is DYN_SYSTEM_PORT."""
    health = SERVICES[name].health
    assert health is not None
    port = int(environ_of(SERVICES[name]).get("DYN_SYSTEM_PORT", "-1"))
    for word in health.words:
        if "//" in word:
            parts = urlsplit(word.partition("=")[2] or word)
            assert parts.hostname == "127.0.0.1", word
            port = parts.port or port
    assert Listener(EVERYWHERE, port) in listeners(name)


@pytest.mark.parametrize("name", OURS)
def test_spans_are_sent_in_the_protocol_of_the_port(name: str) -> None:
    """The collector has one port for gRPC and another one for HTTP: the wrong one takes nothing."""
    environ = environ_of(SERVICES[name])
    assert urlsplit(environ["OTEL_EXPORTER_OTLP_ENDPOINT"]).port == collector_port(environ)
