"""Two workers in one process beside an engine whose library counts in a child process, as a program.

``PROMETHEUS_MULTIPROC_DIR`` is set by who starts it. Prints the page that the framework would serve for the
first worker, and behind a line of dashes the second worker's.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from dynamo.common.backend.metrics import register_engine_registry, register_global_registry
from prometheus_client import generate_latest

from protocols.rejections import RejectReason
from service.telemetry.figures import figures_of
from service.telemetry.metrics import Metrics
from tests.service.telemetry.tales import tale, tale_of_refusal

if TYPE_CHECKING:
    from collections.abc import Callable

LIBRARY = "from prometheus_client import Counter; Counter('trtllm_steps_total', 'Steps.').inc(3)"
DASHES = "-" * 20


class Page:
    """What the framework's compiled ``EngineMetrics`` offers: labels, and a place to append text."""

    def __init__(self) -> None:
        self.auto_labels = {"worker_id": "1f", "model": "m", "model_name": "m"}
        self._callbacks: list[Callable[[], str]] = []

    def register_prometheus_expfmt_callback(self, callback: Callable[[], str]) -> None:
        """Once for each registry."""
        self._callbacks.append(callback)

    def text(self) -> str:
        """One scrape."""
        return "".join(callback() for callback in self._callbacks)


def main() -> None:
    """See above."""
    subprocess.run([sys.executable, "-c", LIBRARY], check=True)
    page, workers = Page(), []
    for _ in range(2):
        workers.append(Metrics(version="1", engine="torch", framework_version="1.4.2", model="m"))
        refused = tale_of_refusal(RejectReason.DRAINING)
        workers[0].request_ended(refused, figures_of(refused))
        workers[0].drain_progress(5)
        workers[0].request_ended(tale(), figures_of(tale()))
    register_engine_registry(page, workers[0].registry, prefix_filters=["dynamo_actor_"])
    register_global_registry(page, engine_prefix="trtllm_")
    print(page.text())
    print(DASHES)
    print(generate_latest(workers[1].registry).decode())


if __name__ == "__main__":
    main()
