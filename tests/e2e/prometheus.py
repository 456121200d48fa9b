"""A real Prometheus on the loopback, which scrapes one worker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from service.demo.client import Client
from service.demo.processes import Child, free_port
from tests.e2e.servers import tool, wait_listening
from tests.e2e.waiting import wait_until

PATIENCE_S = 30.0
_EVERY = "1s"

Samples = list[tuple[float, float]]


def start_prometheus(folder: Path, settings: Mapping[str, Any], port: int) -> Child:
    """With its data in that folder, which is there; ready when this returns."""
    config = folder / "prometheus.yml"
    # JSON is YAML.
    config.write_text(json.dumps(settings), encoding="utf-8")
    words = [
        tool("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    child = Child("prometheus", words, {}, folder / "prometheus.log")
    client = Client(port)
    wait_listening(port)
    # It listens before it answers.
    wait_until(lambda: client.get("/-/ready")[0] == 200, "Prometheus is not ready", PATIENCE_S)
    return child


class Prometheus:
    """Scrapes one address once a second, its shortest usual interval."""

    def __init__(self, folder: Path, target: int) -> None:
        folder.mkdir()
        port = free_port(frozenset({target}))
        target_of = {"job_name": "worker", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
        timing = {"scrape_interval": _EVERY, "scrape_timeout": _EVERY}
        self._child = start_prometheus(folder, {"global": timing, "scrape_configs": [target_of]}, port)
        self._client = Client(port)

    def stop(self) -> None:
        """By its own pid."""
        self._child.ask_to_stop()
        self._child.wait(10)

    def series(self, selector: str) -> dict[str, Samples]:
        """Everything it knows of the last ten minutes: (unix seconds, value), by name and labels."""
        status, text = self._client.get(f"/api/v1/query?query={quote(selector + '[10m]')}")
        assert status == 200, text
        found: list[dict[str, Any]] = json.loads(text)["data"]["result"]
        return {
            json.dumps(one["metric"], sort_keys=True): [(at_s, float(value)) for at_s, value in one["values"]]
            for one in found
        }

    def last(self, selector: str) -> dict[str, float]:
        """The newest value of each series that is alive, by name and labels as JSON."""
        return {name: values[-1][1] for name, values in self.series(selector).items()}

    def up(self) -> list[float]:
        """Each scrape so far: 1 that worked, 0 that did not."""
        return [value for samples in self.series('up{job="worker"}').values() for _, value in samples]

    def wait(self, is_so: Any, what: str) -> None:
        """Until its scrapes have shown it."""
        wait_until(is_so, lambda: (what, self.up()), PATIENCE_S, every_s=0.05)
