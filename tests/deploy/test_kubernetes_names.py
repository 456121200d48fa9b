"""Promises about names in the manifests: each leads to something, and selectors to exactly whom they mean."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.deploy import kustomize, references, selectors
from tests.deploy.kustomize import Object
from tests.deploy.pods import PLAIN, named, pods_in, shipped

SHIPPED = shipped()
MONITORS = kustomize.build(PLAIN / "monitoring")


def all_findings(objects: list[Object]) -> list[str]:
    """Of names and of selectors."""
    return references.findings(objects) + selectors.findings(objects)


@pytest.mark.parametrize("path", SHIPPED)
def test_every_name_leads_somewhere(path: str) -> None:
    """Volumes, ConfigMaps, ports, accounts, files in arguments, and the pods that selectors mean."""
    assert all_findings(SHIPPED[path]) == []


@pytest.mark.parametrize("path", [path for path in SHIPPED if path.startswith("plain")])
def test_pod_monitors_find_every_pod(path: str) -> None:
    """Each pod is scraped by one PodMonitor, on a port that it has."""
    objects = [*SHIPPED[path], *MONITORS]
    assert selectors.findings(objects) == []
    for pod in pods_in(objects):
        scraped = [one for one in MONITORS if selectors.selects(one["spec"]["selector"], pod.labels)]
        assert len(scraped) == 1, pod.owner


@pytest.mark.parametrize("path", [path for path in SHIPPED if path.startswith("plain")])
def test_upstreams_own_monitors_would_find_them_too(path: str) -> None:
    """Pods carry the labels and port names by which Dynamo's platform selects what it scrapes."""
    for pod in pods_in(SHIPPED[path]):
        kind = pod.labels["nvidia.com/dynamo-component-type"]
        assert pod.labels["nvidia.com/metrics-enabled"] == "true"
        assert kind in ({"worker", "prefill", "decode"} if pod.is_worker else {"frontend"})
        assert pod.labels["nvidia.com/dynamo-namespace"] == pod.environment(pod.main)["DYN_NAMESPACE"]
        assert set(pod.ports) == ({"system"} if pod.is_worker else {"http"})


@pytest.mark.parametrize("path", [path for path in SHIPPED if path.startswith("plain")])
def test_frontends_watch_all_workers_and_nobody_else(path: str) -> None:
    """The Service whose slices frontends look for selects each worker, and has discovery's two labels."""
    service = named(SHIPPED[path], "Service", "dynamo-actor-workers")
    assert service["metadata"]["labels"] == {
        "nvidia.com/dynamo-discovery-backend": "kubernetes",
        "nvidia.com/dynamo-discovery-enabled": "true",
    }
    assert not service["spec"].get("publishNotReadyAddresses", False)
    for pod in pods_in(SHIPPED[path]):
        assert selectors.selects({"matchLabels": service["spec"]["selector"]}, pod.labels) is pod.is_worker


@pytest.mark.parametrize("path", [path for path in SHIPPED if path.startswith("plain")])
def test_ports_are_those_that_the_programs_open(path: str) -> None:
    """The port that a manifest names is the one that its variables tell the program to open."""
    for pod in pods_in(SHIPPED[path]):
        environ = pod.environment(pod.main)
        opened = environ["DYN_SYSTEM_PORT"] if pod.is_worker else environ["DYN_HTTP_PORT"]
        assert list(pod.ports.values()) == [int(opened)]


@pytest.mark.parametrize("path", [path for path in SHIPPED if path.startswith("dynamo")])
def test_a_graph_has_names_that_the_operator_takes(path: str) -> None:
    """Names are short, and the serving container is called main."""
    (graph,) = [one for one in SHIPPED[path] if one["kind"] == "DynamoGraphDeployment"]
    assert len(graph["metadata"]["name"]) <= 25
    for component in graph["spec"]["components"]:
        assert len(component["name"]) <= 25
        assert [one["name"] for one in component["podTemplate"]["spec"]["containers"]] == ["main"]


@pytest.mark.parametrize("path", [path for path in SHIPPED if path.startswith("dynamo")])
def test_a_graph_leaves_to_the_operator_what_it_sets(path: str) -> None:
    """Namespace, discovery, planes, ports and probes of a component are not fixed by the manifest."""
    left = {"DYN_NAMESPACE", "DYN_COMPONENT", "DYN_DISCOVERY_BACKEND", "DYN_REQUEST_PLANE", "DYN_EVENT_PLANE"}
    left |= {"DYN_SYSTEM_PORT", "DYN_SYSTEM_HOST", "POD_NAME", "POD_NAMESPACE", "POD_UID"}
    for pod in pods_in(SHIPPED[path]):
        assert left.isdisjoint(one["name"] for one in pod.main["env"])
        assert {"livenessProbe", "readinessProbe", "startupProbe", "ports"}.isdisjoint(pod.main)


@pytest.mark.parametrize("path", [path for path in SHIPPED if path.startswith("dynamo")])
def test_engine_arguments_are_immutable(path: str) -> None:
    """A ConfigMap of a graph cannot be changed under a running worker: another name makes new pods."""
    for one in SHIPPED[path]:
        if one["kind"] == "ConfigMap":
            assert one["immutable"] is True


def set_at(*where: str | int, value: Any) -> Callable[[Object], None]:
    """A change of one place of an object."""

    def change(one: Object) -> None:
        for step in where[:-1]:
            one = one[step]  # type: ignore[index]  # an index of a list
        one[where[-1]] = value  # type: ignore[index]  # the same

    return change


POD = ("spec", "template", "spec")
MAIN = (*POD, "containers", 0)
WORKER = "dynamo-actor-worker"
NOBODY = {"matchLabels": {"a": "b"}}
FIRST_TARGET = ("spec", "egress", 0, "to", 0, "podSelector")
WRONG = [
    ("Deployment", WORKER, set_at("spec", "selector", "matchLabels", value={}), "selects the pods of"),
    ("Deployment", WORKER, set_at(*POD, "serviceAccountName", value="other"), "no ServiceAccount other"),
    ("Deployment", WORKER, set_at(*POD, "volumes", 0, "name", value="tpm"), "which is no volume"),
    ("Deployment", WORKER, set_at(*POD, "volumes", 0, "name", value="tpm"), "nobody mounts tpm"),
    ("Deployment", WORKER, set_at(*POD, "volumes", 3, "configMap", "name", value="x"), "no ConfigMap x"),
    ("Deployment", WORKER, set_at(*MAIN, "args", 5, value="/config/age.yaml"), "age.yaml"),
    ("Deployment", WORKER, set_at(*MAIN, "ports", 0, "name", value="sys"), "asks port system"),
    ("Deployment", WORKER, set_at(*MAIN, "envFrom", 0, "configMapRef", "name", value="y"), "y"),
    ("Deployment", WORKER, set_at(*MAIN, "envFrom", 1, "secretRef", "name", value="z"), "z"),
    ("Deployment", WORKER, set_at(*MAIN, "envFrom", 1, "secretRef", "optional", value=False), "must"),
    ("Deployment", WORKER, set_at(*MAIN, "volumeMounts", 0, "mountPath", value="/config"), "two"),
    ("Deployment", WORKER, set_at(*MAIN, "env", 0, "name", value="POD_UID"), "variable twice"),
    ("Service", "dynamo-frontend", set_at("spec", "ports", 0, "targetPort", value="htpp"), "means port htpp"),
    ("Service", "dynamo-actor-workers", set_at("spec", "selector", value={"a": "b"}), "selects nothing"),
    ("PodDisruptionBudget", WORKER, set_at("spec", "selector", value={}), "not of one owner"),
    ("RoleBinding", "dynamo-actor-discovery", set_at("roleRef", "name", value="r"), "no Role r"),
    ("RoleBinding", "dynamo-actor-discovery", set_at("subjects", 0, "namespace", value="n"), "another"),
    ("NetworkPolicy", "dynamo-actor-metrics", set_at("spec", "podSelector", value=NOBODY), "nothing"),
    ("NetworkPolicy", "dynamo-actor-each-other", set_at(*FIRST_TARGET, value=NOBODY), "not there"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name", "change", "said"), WRONG, ids=[f"{w[1]}-{w[3]}" for w in WRONG])
def test_a_name_that_leads_nowhere_is_found(
    kind: str, name: str, change: Callable[[Object], None], said: str
) -> None:
    """The checks above see each mistake that they are for."""
    objects = copy.deepcopy(SHIPPED["plain/gpu"])
    change(named(objects, kind, name))
    assert any(said in one for one in all_findings(objects)), all_findings(objects)
