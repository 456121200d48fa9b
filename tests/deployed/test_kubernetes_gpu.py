"""Promises about the variants with GPUs, kept by real processes and a double of TensorRT-LLM.

As ``test_kubernetes_discovery.py``, with the arguments and engine files that are shipped; a folder of this
machine stands in for the model of the hub.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from service.demo.client import Client
from tests.deploy import kustomize
from tests.deploy.cluster import Cluster, Running
from tests.deploy.pods import PLAIN
from tests.e2e.roles import PROGRAM, kill_tree
from tests.e2e.stacks import Reader
from tests.e2e.waiting import wait_until
from tests.e2e.word_model import word_of, write_word_model

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]

READY_S = 180.0
MODEL = "Qwen/Qwen3-0.6B"
# What the double says, from the first token on.
ANSWER = [word_of(1000 + i) for i in range(12)]
# Each kind of worker, and the component that it is to be.
VARIANTS = [
    ("gpu", {"dynamo-actor-worker": "backend"}),
    ("disagg", {"dynamo-actor-prefill": "prefill", "dynamo-actor-decode": "backend"}),
]


class Variant:
    """A folder below plain/, with a frontend and one pod of each kind of worker."""

    def __init__(self, name: str, folder: Path, step_ms: int = 10) -> None:
        handed = folder / "handed"
        handed.mkdir()
        self.cluster = Cluster(
            kustomize.build(PLAIN / name),
            folder,
            worker=PROGRAM,
            stand_ins={"--model-path": str(write_word_model(folder / "model"))},
            environ={"DOUBLE_TRANSFERS": str(handed), "DOUBLE_STEP_MS": str(step_ms)},
        )
        self.workers: list[Running] = []

    def start(self, owners: list[str]) -> Client:
        """A client of the frontend that lists the model, once every worker is ready."""
        frontend = self.cluster.start("dynamo-frontend", 0)
        client = Client(frontend.port)
        for owner in owners:
            self.workers.append(self.cluster.start(owner, 0))
        for worker in self.workers:
            self.cluster.wait(worker.is_ready, worker, READY_S)
        # A model is listed as soon as one of its workers is found.
        self.cluster.wait(lambda: found_by(client) == len(owners) and client.models(), frontend, READY_S)
        return client

    def stop(self) -> None:
        """At once: a prefill worker would wait for a minute in case somebody fetches its caches."""
        for worker in self.workers:
            kill_tree(worker.child)
        self.cluster.stop()

    def component_of(self, worker: Running) -> str:
        """Where frontends find it."""
        metadata = self.cluster.metadata(worker)
        assert metadata is not None
        (endpoint,) = metadata["spec"]["data"]["endpoints"].values()
        return str(endpoint["component"])


def found_by(client: Client) -> int:
    """Workers that the frontend knows of."""
    try:
        return len(json.loads(client.get("/health")[1])["instances"])
    except OSError:
        return 0


@pytest.mark.parametrize(("name", "components"), VARIANTS, ids=[name for name, _ in VARIANTS])
def test_a_variant_with_gpus_answers(name: str, components: dict[str, str], tmp_path: Path) -> None:
    """Checked first, found by its role, and a question goes through all of its workers once."""
    variant = Variant(name, tmp_path)
    try:
        client = variant.start(list(components))
        assert client.models() == [MODEL]
        reader = Reader(client, MODEL, "w5 w6 w7", {"max_tokens": len(ANSWER)}).start().finish()
        assert reader.error is None
        assert reader.text.split() == ANSWER
        assert {one.pod.owner: variant.component_of(one) for one in variant.workers} == components
        assert variant.cluster.rights.refused == set()
    finally:
        variant.stop()


def test_a_frontend_that_ends_lets_its_streams_end(tmp_path: Path) -> None:
    """For longer than the framework's own five seconds; whoever comes after the signal is sent away."""
    variant = Variant("gpu", tmp_path, step_ms=60)
    try:
        client = variant.start(["dynamo-actor-worker"])
        frontend = variant.cluster.pods[0]
        reader = Reader(client, MODEL, "w5 w6 w7", {"max_tokens": 140}).start()
        reader.wait_text(2)
        variant.cluster.delete(frontend)
        body = {"model": MODEL, "messages": [{"role": "user", "content": "w5"}], "max_tokens": 1}
        # Requests that come before it has heard the signal are still answered.
        wait_until(
            lambda: client.post("/v1/chat/completions", body)[0] == 503, "new requests are still taken"
        )
        assert reader.reason is None
        assert reader.finish().reason == "length"
        assert reader.text.split() == [word_of(1000 + i) for i in range(140)]
        assert frontend.child.wait(30) == 0
    finally:
        variant.stop()
