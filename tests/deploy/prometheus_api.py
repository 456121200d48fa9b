"""What a Prometheus says of its targets, rules and alerts, through its own API."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from service.demo.client import Client


@dataclass(frozen=True, slots=True)
class PrometheusApi:
    """Asks it, once a call."""

    client: Client

    def targets(self) -> dict[str, dict[str, Any]]:
        """The active targets, by job."""
        return {target["labels"]["job"]: target for target in self._ask("targets")["activeTargets"]}

    def rules(self) -> list[dict[str, Any]]:
        """Every rule of every group, recording rules and alerts."""
        return [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]

    def alert_states(self, name: str) -> set[str]:
        """``pending`` or ``firing``, of each of its instances; empty when there is none."""
        return {alert["state"] for alert in self.alerts() if alert["labels"]["alertname"] == name}

    def alerts(self) -> list[dict[str, Any]]:
        """All that are pending or firing."""
        found: list[dict[str, Any]] = self._ask("alerts")["alerts"]
        return found

    def value(self, expression: str) -> list[float]:
        """The values of an instant query, in no order."""
        result = self._ask(f"query?query={quote(expression)}")["result"]
        return [float(sample["value"][1]) for sample in result]

    def _ask(self, what: str) -> dict[str, Any]:
        status, text = self.client.get(f"/api/v1/{what}")
        assert status == 200, text
        data: dict[str, Any] = json.loads(text)["data"]
        return data
