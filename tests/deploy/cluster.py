"""A variant's pods as processes of this machine beside an API server of ours: small kubelet and controllers.

Taken from the manifests as they are: commands, arguments, variables, probes, ConfigMaps, Services and Roles.
Put in their place: programs of this environment for those of the images, free ports of the loopback for the
pods' ports, a kubeconfig for the token that the kubelet mounts, and a folder for the frontend's home.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from service.demo.client import Client
from service.demo.processes import Child, free_port
from tests.deploy.kube_api import KubernetesApi, Rights
from tests.deploy.kube_store import Store
from tests.deploy.kustomize import Object
from tests.deploy.pods import Pod, named, pods_in
from tests.deploy.selectors import selects
from tests.deploy.worker_pods import write_config_files
from tests.e2e.waiting import wait_until

_WORKER = (sys.executable, "-m", "service")
_LOOPBACK = {"DYN_SYSTEM_HOST": "127.0.0.1", "DYN_HTTP_HOST": "127.0.0.1", "DYN_TCP_RPC_HOST": "127.0.0.1"}
_CHECK_S = 120.0


@dataclass(slots=True)
class Running:
    """One pod that runs. port: of the loopback, in place of its only container port."""

    pod: Pod
    name: str
    child: Child
    client: Client
    port: int
    is_terminating: bool = False

    def is_ready(self) -> bool:
        """Its readiness probe, as the manifest has it."""
        probe = self.pod.main["readinessProbe"]["httpGet"]
        assert probe["port"] in self.pod.ports
        try:
            return 200 <= self.client.get(probe["path"])[0] < 400
        except (OSError, http.client.HTTPException):
            return False


class Cluster:
    """One namespace. Closed by stop(), which ends every process by its own pid.

    worker: the program that runs with a worker's arguments. stand_ins: what takes the place of an option's
    value, by the option. environ: besides what the manifests say.
    """

    def __init__(
        self,
        objects: list[Object],
        folder: Path,
        *,
        worker: Sequence[str] = _WORKER,
        stand_ins: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._programs = {"dynamo-actor-worker": worker, "python3": (sys.executable,)}
        self._stand_ins = dict(stand_ins or {})
        self._environ = dict(environ or {})
        (namespace,) = {one["metadata"]["namespace"] for one in objects}
        self._namespace: str = namespace
        self._objects = objects
        self._folder = folder
        self._ports: set[int] = set()
        self.store = Store()
        self.rights = Rights(objects, self._namespace)
        self._api = KubernetesApi(self.store, self.rights)
        self.pods: list[Running] = []

    def wait(self, is_so: Callable[[], object], about: Running, timeout_s: float) -> None:
        """Until that is so; the cluster goes on meanwhile. about: whose last words explain why it is not."""

        def is_so_now() -> bool:
            self.sync()
            return bool(is_so())

        wait_until(is_so_now, lambda: about.child.last_lines(40), timeout_s, every_s=0.2)

    @property
    def api_url(self) -> str:
        """Where the API server listens."""
        return self._api.url

    def start(self, owner: str, index: int) -> Running:
        """A pod of a Deployment: first what runs before, to its end, then the container main."""
        (pod,) = [one for one in pods_in(self._objects) if one.owner == owner]
        name = f"{owner}-{index}"
        port = free_port(frozenset(self._ports))
        self._ports.add(port)
        for container in pod.spec.get("initContainers", []):
            child = self._run(pod, container, f"{name}-{container['name']}", port, name)
            assert child.wait(_CHECK_S) == 0, child.last_lines(40)
        child = self._run(pod, pod.main, name, port, name)
        self.pods.append(Running(pod, name, child, Client(port), port))
        return self.pods[-1]

    def delete(self, running: Running) -> None:
        """As ``kubectl delete pod``: out of the ready ones, then SIGTERM. preStop is not played."""
        running.is_terminating = True
        self.sync()
        running.child.ask_to_stop()

    def sync(self) -> None:
        """Probe everybody, and write the slices of every Service that has discovery's labels."""
        for one in self._objects:
            if one["kind"] == "Service" and one["metadata"].get("labels"):
                self._write_slice(one)
        for running in self.pods:
            if running.child.exit_code is not None:
                # Its owner is gone: so is the object.
                self.store.delete("dynamoworkermetadatas", running.name)

    def metadata(self, running: Running) -> Object | None:
        """What a worker has told of itself."""
        return self.store.get("dynamoworkermetadatas", running.name)

    def stop(self) -> None:
        """Workers first."""
        for running in sorted(self.pods, key=lambda one: not one.pod.is_worker):
            running.child.ask_to_stop()
        for running in self.pods:
            running.child.wait(30)
        self._api.close()

    def _run(self, pod: Pod, container: Object, name: str, port: int, pod_name: str) -> Child:
        program, *options = container["command"]
        words: list[str] = [*options, *container.get("args", [])]
        files = write_config_files(pod, container, self._folder)
        # A word, and the one before it.
        pairs = zip(words, ["", *words], strict=False)
        words = [self._stand_ins.get(before, str(files.get(word, word))) for word, before in pairs]
        argv = [*self._programs[program], *words]
        environ = {**os.environ, **self._environ, **self._environment(pod, container, port, pod_name)}
        return Child(name, argv, environ, self._folder / f"{name}.log")

    def _environment(self, pod: Pod, container: Object, port: int, pod_name: str) -> dict[str, str]:
        environ = pod.environment(container)
        downward = {
            "metadata.name": pod_name,
            "metadata.namespace": self._namespace,
            "metadata.uid": _uid(pod_name),
        }
        (container_port,) = pod.ports.values()
        replaced = {**downward, str(container_port): str(port), "/home/dynamo": str(self._folder / pod_name)}
        environ = {name: replaced.get(value, value) for name, value in environ.items()}
        return (
            environ | _LOOPBACK | {"HF_HUB_OFFLINE": "1", "KUBECONFIG": str(self._kubeconfig(pod, pod_name))}
        )

    def _kubeconfig(self, pod: Pod, pod_name: str) -> Path:
        """The account's token, where the pod asks for it to be mounted."""
        token = f"token-of-{pod_name}"
        if pod.spec.get("automountServiceAccountToken"):
            account = named(self._objects, "ServiceAccount", pod.spec["serviceAccountName"])
            self.rights.accounts[token] = account["metadata"]["name"]
        entry = {"cluster": "here", "user": "pod", "namespace": self._namespace}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": {"server": self._api.url}}],
            "users": [{"name": "pod", "user": {"token": token}}],
            "contexts": [{"name": "pod", "context": entry}],
            "current-context": "pod",
        }
        file = self._folder / f"{pod_name}.kubeconfig"
        file.write_text(json.dumps(config), encoding="utf-8")
        return file

    def _write_slice(self, service: Object) -> None:
        name = service["metadata"]["name"]
        chosen = [one for one in self.pods if _is_of(service, one.pod.labels) and one.child.exit_code is None]
        made = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{name}-1",
                "namespace": self._namespace,
                # The controller passes on what the Service has.
                "labels": {**service["metadata"]["labels"], "kubernetes.io/service-name": name},
            },
            "addressType": "IPv4",
            "ports": [{"name": one["name"], "port": one["port"]} for one in service["spec"]["ports"]],
            "endpoints": [self._endpoint(one) for one in chosen],
        }
        before = self.store.get("endpointslices", f"{name}-1")
        if before is None or before["endpoints"] != made["endpoints"]:
            self.store.put("endpointslices", made)

    def _endpoint(self, running: Running) -> Object:
        is_ready = running.is_ready()
        conditions = {
            "ready": is_ready and not running.is_terminating,
            "serving": is_ready,
            "terminating": running.is_terminating,
        }
        target = {
            "kind": "Pod",
            "name": running.name,
            "namespace": self._namespace,
            "uid": _uid(running.name),
        }
        return {"addresses": ["127.0.0.1"], "conditions": conditions, "targetRef": target}


def _uid(pod_name: str) -> str:
    """What its variable and its place in a slice both say."""
    return f"uid-of-{pod_name}"


def _is_of(service: Object, labels: Mapping[str, str]) -> bool:
    return selects({"matchLabels": service["spec"]["selector"]}, labels)
