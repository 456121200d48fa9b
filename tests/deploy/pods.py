"""The pods that manifests make: of Deployments, and of the components of a DynamoGraphDeployment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.deploy import kustomize
from tests.deploy.kustomize import Object

REPOSITORY = Path(__file__).resolve().parents[2]
DEPLOY = REPOSITORY / "deploy"
GRAPHS = DEPLOY / "kubernetes" / "dynamo"
PLAIN = DEPLOY / "kubernetes" / "plain"
GRAPH_FILES = ("agg.yaml", "agg-cpu.yaml", "disagg.yaml")
# The folders that an operator applies, each together with the base.
VARIANTS = ("cpu", "gpu", "disagg")

# What Dynamo's operator gives every container called main, and a pod's environment on Kubernetes anyway.
_OPERATOR_PORTS = {"frontend": {"http": 8000}, "worker": {"system": 9090, "nixl": 19090}}
_OPERATOR_WORKER = {
    "DYN_SYSTEM_PORT": "9090",
    "DYN_SYSTEM_ENABLED": "true",
    "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS": '["generate"]',
    "DYN_HEALTH_CHECK_ENABLED": "false",
    "DYN_FORWARDPASS_METRIC_PORT": "20380",
}
_OPERATOR_ALL = {
    "DYN_NAMESPACE": "default-actor",
    "DYN_DISCOVERY_BACKEND": "kubernetes",
    "POD_NAME": "pod-0",
    "POD_NAMESPACE": "default",
    "POD_UID": "0",
}


@dataclass(frozen=True, slots=True)
class Pod:
    """One kind of pod.

    owner: name of the Deployment, or of graph and component. kind: in the operator's words, frontend, worker,
    prefill or decode. spec: as the API has it. objects: everything that is applied together with it.
    ports: of the container main, by name.
    """

    owner: str
    kind: str
    labels: Mapping[str, str]
    spec: Object
    objects: list[Object] = field(repr=False)
    is_of_graph: bool
    is_worker: bool
    ports: Mapping[str, int]

    @property
    def main(self) -> Object:
        """The container that serves."""
        containers: list[Object] = self.spec["containers"]
        (found,) = [one for one in containers if one["name"] == "main"]
        return found

    @property
    def grace_s(self) -> int:
        """From SIGTERM (and preStop) to SIGKILL."""
        return int(self.spec["terminationGracePeriodSeconds"])

    def environment(self, container: Object) -> dict[str, str]:
        """What the container would see, without what comes from secrets."""
        environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
        if self.is_of_graph:
            environ |= _OPERATOR_ALL | (_OPERATOR_WORKER if self.is_worker else {})
        for source in container.get("envFrom", []):
            if "configMapRef" in source:
                environ |= named(self.objects, "ConfigMap", source["configMapRef"]["name"])["data"]
        for one in container.get("env", []):
            if "value" in one:
                environ[one["name"]] = one["value"]
            elif "fieldRef" in one["valueFrom"]:
                environ[one["name"]] = one["valueFrom"]["fieldRef"]["fieldPath"]
        return environ


def named(objects: list[Object], kind: str, name: str) -> Object:
    """Raises LookupError when there is none."""
    for one in objects:
        if (one["kind"], one["metadata"]["name"]) == (kind, name):
            return one
    raise LookupError(f"no {kind} {name}")


def pods_in(objects: list[Object]) -> list[Pod]:
    """Of all Deployments and graphs in there."""
    found: list[Pod] = []
    for one in objects:
        if one["kind"] == "Deployment":
            found.append(_of_deployment(one, objects))
        elif one["kind"] == "DynamoGraphDeployment":
            found += [_of_component(one, component, objects) for component in one["spec"]["components"]]
    return found


def _of_deployment(one: Object, objects: list[Object]) -> Pod:
    template = one["spec"]["template"]
    labels, spec = template["metadata"]["labels"], template["spec"]
    ports = {p["name"]: p["containerPort"] for c in spec["containers"] for p in c.get("ports", [])}
    is_worker = labels.get("nvidia.com/dynamo-component-class") == "worker"
    kind = labels["nvidia.com/dynamo-component-type"]
    return Pod(one["metadata"]["name"], kind, labels, spec, objects, False, is_worker, ports)


def _of_component(graph: Object, component: Object, objects: list[Object]) -> Pod:
    is_worker = component["type"] != "frontend"
    spec: dict[str, Any] = component["podTemplate"]["spec"]
    ports = _OPERATOR_PORTS["worker" if is_worker else "frontend"]
    owner = f"{graph['metadata']['name']}/{component['name']}"
    main = next(c for c in spec["containers"] if c["name"] == "main")
    # The graph's variables; the component's own win.
    merged = {e["name"]: e for e in graph["spec"].get("env", [])} | {
        e["name"]: e for e in main.get("env", [])
    }
    containers = [c | {"env": list(merged.values())} if c is main else c for c in spec["containers"]]
    whole = spec | {"containers": containers}
    return Pod(owner, component["type"], {}, whole, objects, True, is_worker, ports)


def shipped() -> dict[str, list[Object]]:
    """What is applied together, by the path of the file or folder below deploy/kubernetes."""
    graphs = {f"dynamo/{name}": kustomize.documents(GRAPHS / name) for name in GRAPH_FILES}
    return graphs | {f"plain/{name}": kustomize.build(PLAIN / name) for name in VARIANTS}
