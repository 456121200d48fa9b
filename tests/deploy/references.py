"""Whether every name in a pod leads somewhere: findings as sentences, none when all is well."""

from __future__ import annotations

from collections.abc import Iterator

from tests.deploy import kustomize
from tests.deploy.kustomize import Object
from tests.deploy.pods import Pod, named, pods_in

# Made by hand, both optional; deploy/README.md says how.
SECRETS = {"hf-token-secret", "dynamo-actor-control"}


def findings(objects: list[Object]) -> list[str]:
    """What is wrong, a sentence each."""
    found = [f"{pod.owner}: {text}" for pod in pods_in(objects) for text in _of_pod(pod)]
    return found + [
        text for one in objects if one["kind"] == "RoleBinding" for text in _binding(objects, one)
    ]


def _of_pod(pod: Pod) -> Iterator[str]:
    yield from _account(pod)
    used: set[str] = set()
    for container in kustomize.containers({"spec": {"template": {"spec": pod.spec}}}):
        mounts = container.get("volumeMounts", [])
        used |= {mount["name"] for mount in mounts}
        yield from _mounts(pod, container, mounts)
        yield from _sources(pod, container)
        yield from _probes(pod, container)
        yield from _files(pod, container)
    for volume in pod.spec.get("volumes", []):
        if volume["name"] not in used:
            yield f"nobody mounts {volume['name']}"
        if "configMap" in volume and not _is_there(pod, "ConfigMap", volume["configMap"]["name"]):
            yield f"no ConfigMap {volume['configMap']['name']}"


def _is_there(pod: Pod, kind: str, name: str) -> bool:
    try:
        named(pod.objects, kind, name)
    except LookupError:
        return False
    return True


def _account(pod: Pod) -> Iterator[str]:
    account = pod.spec.get("serviceAccountName")
    if account is not None and not _is_there(pod, "ServiceAccount", account):
        yield f"no ServiceAccount {account}"


def _mounts(pod: Pod, container: Object, mounts: list[Object]) -> Iterator[str]:
    volumes = {volume["name"] for volume in pod.spec.get("volumes", [])}
    for mount in mounts:
        if mount["name"] not in volumes:
            yield f"{container['name']} mounts {mount['name']}, which is no volume"
    paths = [mount["mountPath"] for mount in mounts]
    if len(set(paths)) != len(paths):
        yield f"{container['name']} mounts two volumes at one path"


def _sources(pod: Pod, container: Object) -> Iterator[str]:
    for source in container.get("envFrom", []):
        if "configMapRef" in source and not _is_there(pod, "ConfigMap", source["configMapRef"]["name"]):
            yield f"no ConfigMap {source['configMapRef']['name']}"
        if "secretRef" in source:
            yield from _secret(source["secretRef"])
    names = [one["name"] for one in container.get("env", [])]
    if len(set(names)) != len(names):
        yield f"{container['name']} has a variable twice"
    for one in container.get("env", []):
        if "secretKeyRef" in one.get("valueFrom", {}):
            yield from _secret(one["valueFrom"]["secretKeyRef"])


def _secret(source: Object) -> Iterator[str]:
    if source["name"] not in SECRETS:
        yield f"Secret {source['name']} is explained nowhere"
    if not source.get("optional"):
        yield f"Secret {source['name']} must be there for the pod to start"


def _probes(pod: Pod, container: Object) -> Iterator[str]:
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        if probe in container and container[probe]["httpGet"]["port"] not in pod.ports:
            yield f"{probe} asks port {container[probe]['httpGet']['port']}, which is not there"


def _files(pod: Pod, container: Object) -> Iterator[str]:
    """Arguments that name a file mean one of a ConfigMap that is mounted there."""
    volumes = {volume["name"]: volume for volume in pod.spec.get("volumes", [])}
    there: set[str] = set()
    for mount in container.get("volumeMounts", []):
        name = volumes.get(mount["name"], {}).get("configMap", {}).get("name")
        if name is not None and _is_there(pod, "ConfigMap", name):
            data = named(pod.objects, "ConfigMap", name)["data"]
            there |= {f"{mount['mountPath']}/{file}" for file in data}
    for word in container.get("args", []):
        if word.startswith("/") and word not in there:
            yield f"{container['name']} means the file {word}, which is not there"


def _binding(objects: list[Object], one: Object) -> Iterator[str]:
    wanted = [(one["roleRef"]["kind"], one["roleRef"]["name"])]
    wanted += [(subject["kind"], subject["name"]) for subject in one["subjects"]]
    there = {(each["kind"], each["metadata"]["name"]) for each in objects}
    for kind, name in wanted:
        if (kind, name) not in there:
            yield f"RoleBinding {one['metadata']['name']}: no {kind} {name}"
    for subject in one["subjects"]:
        if subject["namespace"] != one["metadata"].get("namespace"):
            yield f"RoleBinding {one['metadata']['name']}: {subject['name']} is of another namespace"
