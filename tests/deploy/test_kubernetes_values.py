"""Values of the manifests on which the service depends, in tables: a change of one is a change of both."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.deploy.kustomize import Object
from tests.deploy.pods import Pod, named, pods_in, shipped

SHIPPED = shipped()
PODS = [
    pytest.param(p, id=f"{path} {p.owner}") for path, objects in SHIPPED.items() for p in pods_in(objects)
]
VARIANTS = [path for path in SHIPPED if path.startswith("plain")]
DEPLOYMENTS = [
    (path, one["metadata"]["name"])
    for path in VARIANTS
    for one in SHIPPED[path]
    if one["kind"] == "Deployment"
]


class Probe(NamedTuple):
    """Path, port by name, and the seconds and failures that are allowed."""

    path: str
    port: str
    period_s: int
    timeout_s: int
    failures: int
    delay_s: int = 0


class Sizes(NamedTuple):
    """Of the volumes of a pod; shm is a graph's sharedMemorySize, or the plain variant's volume."""

    tmp: str
    cache: str
    shm: str | None
    disk: str
    memory: str


PROBES = {
    True: {
        # Two hours, as the operator's.
        "startupProbe": Probe("/live", "system", 10, 5, 720),
        # Not the operator's one failure: one late answer of a busy loop would end a worker.
        "livenessProbe": Probe("/live", "system", 5, 4, 3),
        "readinessProbe": Probe("/health", "system", 5, 4, 3),
    },
    False: {
        "livenessProbe": Probe("/live", "http", 10, 3, 3, 15),
        "readinessProbe": Probe("/health", "http", 5, 3, 3, 5),
    },
}
REPLICAS = {"dynamo-frontend": 2, "plain/cpu": 1, "plain/gpu": 2, "plain/disagg": 1}
SIZES = {
    "frontend": Sizes("1Gi", "1Gi", None, "1Gi", "2Gi"),
    # Weights and what they become while they are prepared; no process of TensorRT-LLM.
    "cpu": Sizes("2Gi", "2Gi", "1Gi", "2Gi", "4Gi"),
    # MPI and NCCL share what is below /dev/shm: the 64 MiB of a container's own are not enough.
    "gpu": Sizes("2Gi", "10Gi", "8Gi", "10Gi", "24Gi"),
}
RULES = {
    ("discovery.k8s.io", "endpointslices"): {"get", "list", "watch"},
    ("", "pods"): {"get", "list", "watch"},
    ("nvidia.com", "dynamoworkermetadatas"): {
        "create", "get", "list", "watch", "update", "patch", "delete",
    },
}  # fmt: skip


def probe(raw: dict[str, Any]) -> Probe:
    """As the API has it; a key that is not known here is an error."""
    known = {"httpGet", "periodSeconds", "timeoutSeconds", "failureThreshold", "initialDelaySeconds"}
    assert raw.keys() <= known
    get = raw["httpGet"]
    times = (raw["periodSeconds"], raw["timeoutSeconds"], raw["failureThreshold"])
    return Probe(get["path"], get["port"], *times, raw.get("initialDelaySeconds", 0))


def shared_memory(pod: Pod, volumes: dict[str, Object]) -> str | None:
    """What is at /dev/shm, of a graph by its own key."""
    if pod.is_of_graph:
        (graph,) = [one for one in pod.objects if one["kind"] == "DynamoGraphDeployment"]
        name = pod.owner.partition("/")[2]
        (component,) = [one for one in graph["spec"]["components"] if one["name"] == name]
        found: str | None = component.get("sharedMemorySize")
        return found
    return volumes["shared-memory"]["sizeLimit"] if "shared-memory" in volumes else None


def kind_of(pod: Pod) -> str:
    """The row of the table of sizes."""
    if not pod.is_worker:
        return "frontend"
    return "gpu" if "nvidia.com/gpu" in pod.main["resources"]["limits"] else "cpu"


@pytest.mark.parametrize("pod", [p for p in PODS if "plain" in str(p.id)])
def test_probes_ask_the_right_thing_for_long_enough(pod: Pod) -> None:
    """Path, port, period, patience and failures, of each probe, and no other probe."""
    there = {name: probe(raw) for name, raw in pod.main.items() if name.endswith("Probe")}
    assert there == PROBES[pod.is_worker]


@pytest.mark.parametrize(("path", "name"), DEPLOYMENTS)
def test_an_update_takes_nothing_away_first(path: str, name: str) -> None:
    """The spare comes up, is ready for ten seconds, and only then one goes."""
    spec = named(SHIPPED[path], "Deployment", name)["spec"]
    assert spec["strategy"] == {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    assert spec["minReadySeconds"] == 10
    assert spec["replicas"] == REPLICAS.get(name, REPLICAS[path])


@pytest.mark.parametrize(("path", "name"), DEPLOYMENTS)
def test_a_node_can_be_drained_one_pod_at_a_time(path: str, name: str) -> None:
    """With 0 no node ever could, and with more two workers went at once."""
    budget = named(SHIPPED[path], "PodDisruptionBudget", name)["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == named(SHIPPED[path], "Deployment", name)["spec"]["selector"]


@pytest.mark.parametrize("path", VARIANTS)
def test_discovery_has_these_rights_and_no_other(path: str) -> None:
    """One Role, by resource; nothing of the whole cluster."""
    rules = named(SHIPPED[path], "Role", "dynamo-actor-discovery")["rules"]
    granted = {
        (group, resource): set(rule["verbs"])
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert granted == RULES
    assert len(rules) == len(RULES)
    kinds = [one["kind"] for one in SHIPPED[path]]
    assert [kind for kind in kinds if "Role" in kind] == ["Role", "RoleBinding"]


@pytest.mark.parametrize("pod", PODS)
def test_volumes_hold_what_is_put_into_them(pod: Pod) -> None:
    """Model, temporary files and shared memory, and the share of disk and memory beside them."""
    volumes = {one["name"]: one["emptyDir"] for one in pod.spec["volumes"] if "emptyDir" in one}
    resources = pod.main["resources"]
    there = Sizes(
        volumes["tmp"]["sizeLimit"],
        volumes["cache"]["sizeLimit"],
        shared_memory(pod, volumes),
        resources["requests"]["ephemeral-storage"],
        resources["limits"]["memory"],
    )
    assert there == SIZES[kind_of(pod)]


@pytest.mark.parametrize("pod", PODS)
def test_volumes_belong_to_who_writes_them(pod: Pod) -> None:
    """A claim in the place of an emptyDir is root's, but for fsGroup; group 0 is the image's."""
    security = pod.spec["securityContext"]
    assert (security["runAsUser"], security["runAsGroup"], security["fsGroup"]) == (1000, 0, 1000)
