"""Roots that are read-only: whatever a service of the compose files writes lies where it may."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
import yaml

from tests.deploy.compose_files import DEPLOY, FOLDER
from tests.deploy.listening import SERVICES, environ_of, value_of

OURS = sorted(name for name, service in SERVICES.items() if "build" in service.raw)


def may_write(name: str, path: str) -> bool:
    """Whether that place lies in memory or in a volume of the service."""
    return any(PurePosixPath(path).is_relative_to(place) for place in SERVICES[name].writable)


def stores() -> dict[str, list[str]]:
    """What each of the other services is told to write, and where Grafana's image has its database."""
    tempo = yaml.safe_load((DEPLOY / "observability" / "tempo.yaml").read_text(encoding="utf-8"))
    traces = tempo["storage"]["trace"]
    nats = (FOLDER / "nats-server.conf").read_text(encoding="utf-8")
    return {
        "etcd": [value_of(SERVICES["etcd"], "--data-dir")],
        "prometheus": [value_of(SERVICES["prometheus"], "--storage.tsdb.path")],
        "tempo": [traces["wal"]["path"], traces["local"]["path"]],
        "nats": [nats.partition("store_dir: ")[2].split()[0]],
        "grafana": ["/var/lib/grafana"],
        "otel-collector": [],
    }


@pytest.mark.parametrize("name", OURS)
def test_our_image_writes_its_caches(name: str) -> None:
    """Models in a worker, tokenizers in a frontend: each cache that the image names, and temporary files."""
    assert SERVICES[name].raw["read_only"] is True
    caches = {
        place for variable, place in environ_of(SERVICES[name]).items()
        if variable == "HF_HOME" or "CACHE_" in variable
    }  # fmt: skip
    assert f"{environ_of(SERVICES[name])['HOME']}/.cache" in caches
    assert [place for place in [*caches, "/tmp"] if not may_write(name, place)] == []


@pytest.mark.parametrize("name", sorted(SERVICES.keys() - set(OURS)))
def test_a_store_is_where_its_service_may_write(name: str) -> None:
    """Said by its own words or file; of each service it is known."""
    assert [place for place in stores()[name] if not may_write(name, place)] == []


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_what_lies_in_memory_is_everybodys(name: str) -> None:
    """It is root's own, like the folder that it hides, and no service here is root: /tmp alone is open."""
    for entry in SERVICES[name].raw.get("tmpfs", ()):
        assert entry == "/tmp" or entry.endswith(":mode=1777"), entry
