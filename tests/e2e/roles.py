"""A frontend, prefill and decode workers on TensorRT-LLM's double, which hands caches over by files."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from service.demo.processes import Child
from tests.e2e.stacks import Reader, Stack, Worker
from tests.e2e.waiting import wait_until

PROGRAM = (sys.executable, "-m", "tests.doubles.trtllm_worker")
# How long a prefill keeps what it handed over: a test that stops one waits for that.
KEPT_MS = 1500


class Roles:
    """Workers of each role. ``handed`` is the folder in which KV caches wait for a decode worker."""

    def __init__(
        self,
        folder: Path,
        model: Path,
        *,
        step_ms: float = 10,
        drain_s: float = 8,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self.handed = folder / "handed"
        self.handed.mkdir(parents=True)
        double = {"DOUBLE_TRANSFERS": str(self.handed), "DOUBLE_STEP_MS": str(step_ms)}
        self._words = ["--engine", "trtllm", "--model", str(model), "--drain-timeout", str(drain_s)]
        self.stack = Stack(
            folder, self._words, workers=0, environ={**double, **(environ or {})}, program=PROGRAM
        )
        self.prefills: list[Worker] = []
        self.decodes: list[Worker] = []

    def __enter__(self) -> Roles:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.stop()

    def add_prefill(self, kept_ms: int = KEPT_MS, **script: Any) -> Worker:
        """One more that computes prompts."""
        words = ["--trtllm.cache_transceiver_config.kv_transfer_timeout_ms", str(kept_ms)]
        self.prefills.append(self._add("prefill", words, script))
        return self.prefills[-1]

    def add_decode(self, **script: Any) -> Worker:
        """One more that answers."""
        self.decodes.append(self._add("decode", (), script))
        return self.decodes[-1]

    def wait_ready(self) -> Roles:
        """Until the frontend serves the model and every worker is healthy."""
        self.stack.wait_ready()
        return self

    def ask(self, question: str, **options: Any) -> Reader:
        """A streaming client that has begun."""
        return Reader(self.stack.client, self.stack.model(), question, options).start()

    def begin(self, question: str, **options: Any) -> http.client.HTTPConnection:
        """A streaming client that reads nothing; closing the connection is how it leaves."""
        messages = [{"role": "user", "content": question}]
        body = {"model": self.stack.model(), "messages": messages, "stream": True, **options}
        connection = http.client.HTTPConnection("127.0.0.1", self.stack.http_port, timeout=60)
        connection.request(
            "POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"}
        )
        return connection

    @property
    def registered(self) -> set[tuple[str, str]]:
        """Component and role of every worker that frontends find."""
        files = (self._folder / "discovery" / "v1" / "mdc").rglob("*")
        cards = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.is_file()]
        return {(card["component"], card["card_json"]["worker_type"]) for card in cards}

    @property
    def waiting(self) -> int:
        """KV caches that nobody has fetched."""
        return sum(1 for _ in self.handed.glob("*.json"))

    def wait_at_rest(self) -> None:
        """Until no worker has a request and no KV cache waits for one."""

        def is_at_rest() -> bool:
            states = [worker.status() for worker in (*self.prefills, *self.decodes)]
            return not self.waiting and not any(state["live"] or state["in_flight"] for state in states)

        wait_until(is_at_rest, lambda: f"{self.waiting} caches wait", 20)

    def _add(self, role: str, words: Sequence[str], script: dict[str, Any]) -> Worker:
        options = [*self._words, "--disaggregation-mode", role, *words]
        environ = {"TENSORRT_LLM_DOUBLE": json.dumps(script)} if script else {}
        worker = self.stack.add_worker(options, environ)
        self.stack.workers.append(worker)
        return worker


def kill(worker: Worker) -> None:
    """As a node that goes away: no goodbye, neither of the worker nor of its engine."""
    kill_tree(worker.child)


def kill_tree(child: Child) -> None:
    """A process and all that it started, by their own pids."""
    process = psutil.Process(child.pid)
    for one in (*process.children(recursive=True), process):
        one.kill()
    child.wait(10)
