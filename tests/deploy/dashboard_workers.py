"""Who is in the fleet that the dashboard is asked about, and who of them is chosen.

Two chosen workers share the load: `A`, of a generation of Dynamo's operator, and `B`. Whoever is not chosen
differs from `A` in one thing only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

JOB = "dynamo-backend"


@dataclass(frozen=True, slots=True)
class Worker:
    """What is on each of its series. own: labels that not every one has."""

    instance: str
    namespace: str = "chat-0123abcd"
    component: str = "decode"
    model: str = "m1"
    job: str = JOB
    own: str = ""

    @property
    def scraped(self) -> str:
        """What the scrape adds."""
        return f'job="{self.job}", instance="{self.instance}"{self.own and ", " + self.own}'

    @property
    def labels(self) -> str:
        """With what the framework adds. `model` is a path, and no name."""
        return (
            f'{self.scraped}, dynamo_namespace="{self.namespace}", dynamo_component="{self.component}", '
            f'model_name="{self.model}", model="/models/{self.model}"'
        )


A = Worker("a:9090", own='pod="a-0"')
B = Worker("b:9090", "talk", "prefill", "m2", own='pod="b-0"')
NOT_CHOSEN = (
    replace(A, namespace="chat-eu", job="abroad"),
    replace(A, model="m3", job="another-model"),
    replace(A, component="encode", job="another-role"),
    replace(A, instance="z:9090", own='pod="z-0"'),
)
NOBODY_CHOSEN = Worker("s:9090", job="another-worker")
# Known by name only, so that each box can be seen to offer what is among the choice of the boxes before it.
STRANGERS = (
    NOBODY_CHOSEN,
    Worker("t:9090", component="encode", job="strangers"),
    Worker("u:9090", model="m3", job="strangers"),
    Worker("v:9090", "chat-eu", job="strangers"),
    Worker("w:9090", model="m3", component="guard", job="strangers"),
    Worker("x:9090", "chat-eu", component="draft", job="strangers"),
    Worker("y:9090", "chat-eu", component="router", model="m4", job="strangers"),
)
# How many workers show nothing but this state; `a` and `b` serve.
STATES: Mapping[str, int] = {
    "starting": 3, "loading": 4, "serving": 0, "draining": 1, "drained": 1, "stopping": 1, "failed": 1,
}  # fmt: skip
OF_STATES = tuple(
    (Worker(f"{state}-{number}:9090"), state) for state, count in STATES.items() for number in range(count)
)
# Without a cache of keys and values; and gone, less than an hour ago and more, each the last one of its job.
NO_CACHE = Worker("no-cache:9090")
GONE, LONG_GONE = Worker("gone:9090", job="gone"), Worker("old:9090", job="old")
# Loading, after what is still known to have been one of ours; the second one has the address of a stranger.
LOADING = (Worker("new:9090"), Worker("z:9090", job=GONE.job))
# What stands in the boxes of the dashboard: several of each, as Grafana writes it.
CHOSEN: Mapping[str, str] = {
    "namespace": "(chat|talk)",
    "model": "(m1|m2)",
    "role": "(decode|prefill)",
    "worker": "|".join(
        one.instance for one in (A, B, NO_CACHE, GONE, LONG_GONE, *(worker for worker, _ in OF_STATES))
    ).join("()"),
}
ALL: Mapping[str, str] = dict.fromkeys(CHOSEN, ".+")
