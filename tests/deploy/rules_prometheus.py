"""A real Prometheus with the shipped rules, in steps of a second."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from service.demo.client import Client
from service.demo.processes import free_port
from tests.deploy.prometheus_api import PrometheusApi
from tests.deploy.rule_files import FILES, read
from tests.e2e.prometheus import start_prometheus
from tests.e2e.stacks import Worker

PATIENCE_S = 60.0
_EVERY = "1s"


class RulesPrometheus:
    """Scrapes these workers as the job of the shipped configuration, and evaluates every rule."""

    def __init__(self, folder: Path, workers: Sequence[Worker]) -> None:
        ports = [worker.port for worker in workers]
        port = free_port(frozenset(ports))
        self._child = start_prometheus(folder, _config(ports, _in_a_hurry(folder)), port)
        self.api = PrometheusApi(Client(port))

    def __enter__(self) -> PrometheusApi:
        return self.api

    def __exit__(self, *_: object) -> None:
        """By its own pid."""
        self._child.ask_to_stop()
        self._child.wait(10)


def _in_a_hurry(folder: Path) -> list[Path]:
    """Copies of the rules that are all evaluated at every step: no group has an interval of its own."""
    copies: list[Path] = []
    for path in FILES:
        groups = [{**group, "interval": _EVERY} for group in read(path)["groups"]]
        copies.append(folder / path.name)
        copies[-1].write_text(json.dumps({"groups": groups}), encoding="utf-8")
    return copies


def _config(ports: Sequence[int], rules: Sequence[Path]) -> dict[str, object]:
    targets = [f"127.0.0.1:{port}" for port in ports]
    return {
        "global": {"scrape_interval": _EVERY, "scrape_timeout": _EVERY, "evaluation_interval": _EVERY},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [{"job_name": "dynamo-backend", "static_configs": [{"targets": targets}]}],
    }
