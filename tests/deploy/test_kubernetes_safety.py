"""Promises about what the pods may do: to their nodes, to each other, and who may speak to them."""

from __future__ import annotations

import copy

import pytest

from tests.deploy import kustomize
from tests.deploy.pods import Pod, named, pods_in, shipped
from tests.deploy.reach import Peer, may_connect, peer_of

SHIPPED = shipped()
PODS = [
    pytest.param(p, id=f"{path} {p.owner}") for path, objects in SHIPPED.items() for p in pods_in(objects)
]
PLAIN = [path for path in SHIPPED if path.startswith("plain")]
OTHER = Peer("dynamo", {"app": "other"}, {"http": 80})
STRANGER = Peer("elsewhere", {"app": "other"})
PROMETHEUS = Peer("monitoring", {"app": "prometheus"})
COLLECTOR = Peer("monitoring", {"app": "otel-collector"})
NAMES = Peer("kube-system", {"k8s-app": "kube-dns"})
OUTSIDE = Peer("", None)
REQUEST_PLANE = 41297  # any free port of a pod


def all_containers(pod: Pod) -> list[kustomize.Object]:
    """With the one that only checks."""
    return list(kustomize.containers({"spec": {"template": {"spec": pod.spec}}}))


@pytest.mark.parametrize("pod", PODS)
def test_pods_meet_the_strictest_standard(pod: Pod) -> None:
    """What Pod Security "restricted" asks for, and a root that cannot be written."""
    security = pod.spec["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] == 1000
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert {"hostNetwork", "hostPID", "hostIPC"}.isdisjoint(pod.spec)
    for container in all_containers(pod):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    for volume in pod.spec["volumes"]:
        assert volume.keys() - {"name"} <= {"emptyDir", "configMap", "secret", "persistentVolumeClaim"}


@pytest.mark.parametrize("pod", PODS)
def test_what_is_written_has_a_place_with_a_bound(pod: Pod) -> None:
    """/tmp and the cache are writable, in workers shared memory too, and nothing fills a node's disk."""
    writable = {"/tmp", "/home/dynamo/.cache"}
    for container in all_containers(pod):
        there = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
        is_server_of_plain = pod.is_worker and not pod.is_of_graph and container["name"] == "main"
        assert there == (writable | {"/dev/shm"} if is_server_of_plain else writable)
    for volume in pod.spec["volumes"]:
        if "emptyDir" in volume:
            assert volume["emptyDir"]["sizeLimit"]


@pytest.mark.parametrize("pod", PODS)
def test_memory_has_a_limit_and_every_container_a_share(pod: Pod) -> None:
    """A pod that needs more memory than it asked for harms itself, not its neighbours."""
    for container in all_containers(pod):
        resources = container["resources"]
        assert resources["limits"]["memory"]
        assert {"cpu", "memory", "ephemeral-storage"} <= resources["requests"].keys()


@pytest.mark.parametrize("pod", PODS)
def test_last_words_are_kept(pod: Pod) -> None:
    """Why a container ended is in the pod's own state, where it is looked for first."""
    for container in all_containers(pod):
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"


@pytest.mark.parametrize("pod", [p for p in PODS if "cpu" in str(p.id) and "frontend" not in str(p.id)])
def test_a_cpu_worker_leaves_room_in_what_it_is_given(pod: Pod) -> None:
    """Threads of the model and its memory stay below the container's limits."""
    words = pod.main["args"]
    limits = pod.main["resources"]["limits"]
    assert int(words[words.index("--threads") + 1]) + 1 == int(limits["cpu"])
    assert (
        float(words[words.index("--memory-gb") + 1]) * 1e9 + 1.5e9
        < int(limits["memory"].rstrip("Gi")) * 2**30
    )


@pytest.mark.parametrize("pod", [p for p in PODS if "plain" in str(p.id)])
def test_the_api_token_is_mounted_only_where_it_is_said(pod: Pod) -> None:
    """Workers and frontends need it for discovery; the account by itself gives it to nobody."""
    account = named(pod.objects, "ServiceAccount", pod.spec["serviceAccountName"])
    assert account["automountServiceAccountToken"] is False
    assert pod.spec["automountServiceAccountToken"] is True
    assert pod.spec["enableServiceLinks"] is False


@pytest.mark.parametrize("pod", [p for p in PODS if "frontend" not in str(p.id)])
def test_control_routes_have_a_token_of_a_secret(pod: Pod) -> None:
    """Never one that is written in a manifest."""
    (token,) = [one for one in pod.main["env"] if one["name"] == "DYN_ACTOR_CONTROL_TOKEN"]
    assert token["valueFrom"]["secretKeyRef"] == {
        "name": "dynamo-actor-control",
        "key": "token",
        "optional": True,
    }


@pytest.mark.parametrize("path", PLAIN)
def test_pods_of_the_service_reach_each_other(path: str) -> None:
    """Requests, answers, tokenizers, KV events and KV caches go between them, on any port."""
    pods = [peer_of(pod) for pod in pods_in(SHIPPED[path])]
    for source in pods:
        for target in pods:
            assert may_connect(SHIPPED[path], source, target, 9090)
            assert may_connect(SHIPPED[path], source, target, REQUEST_PLANE)


@pytest.mark.parametrize("path", PLAIN)
def test_others_reach_frontends_only_for_requests(path: str) -> None:
    """Pods of any namespace and clients from outside get to port 8000 of a frontend and no further."""
    for pod in pods_in(SHIPPED[path]):
        for source in (OTHER, STRANGER, PROMETHEUS, OUTSIDE):
            assert may_connect(SHIPPED[path], source, peer_of(pod), 8000) is not pod.is_worker
            assert not may_connect(SHIPPED[path], source, peer_of(pod), REQUEST_PLANE)


@pytest.mark.parametrize("path", PLAIN)
def test_only_monitoring_reaches_a_workers_system_port(path: str) -> None:
    """Metrics are there, and control routes."""
    for pod in pods_in(SHIPPED[path]):
        assert may_connect(SHIPPED[path], PROMETHEUS, peer_of(pod), 9090) is pod.is_worker
        for source in (OTHER, STRANGER, OUTSIDE):
            assert not may_connect(SHIPPED[path], source, peer_of(pod), 9090)


@pytest.mark.parametrize("path", PLAIN)
def test_pods_reach_what_they_need_outside_and_nothing_else(path: str) -> None:
    """Names, the API server and the hub by TLS, and the collector; no other pod, port or database."""
    for pod in pods_in(SHIPPED[path]):
        source = peer_of(pod)
        needed = [(NAMES, 53, "UDP"), (NAMES, 53, "TCP"), (OUTSIDE, 53, "UDP")]
        needed += [(OUTSIDE, 443, "TCP"), (OUTSIDE, 6443, "TCP")]
        needed += [(COLLECTOR, 4317, "TCP"), (COLLECTOR, 4318, "TCP")]
        refused = [
            (OTHER, 80, "TCP"),
            (STRANGER, 5432, "TCP"),
            (OUTSIDE, 80, "TCP"),
            (COLLECTOR, 3100, "TCP"),
        ]
        for target, port, protocol in needed:
            assert may_connect(SHIPPED[path], source, target, port, protocol)
        for target, port, protocol in refused:
            assert not may_connect(SHIPPED[path], source, target, port, protocol)


def test_without_its_policies_a_worker_is_open_to_all() -> None:
    """The rule of the API, as the checks above follow it; and one policy less makes a difference."""
    objects = SHIPPED["plain/gpu"]
    worker = next(peer_of(pod) for pod in pods_in(objects) if pod.is_worker)
    frontend = next(peer_of(pod) for pod in pods_in(objects) if not pod.is_worker)
    assert may_connect([], STRANGER, worker, REQUEST_PLANE)
    assert not may_connect(objects, STRANGER, worker, REQUEST_PLANE)
    rest = [one for one in objects if one["metadata"]["name"] != "dynamo-actor-each-other"]
    assert not may_connect(rest, frontend, worker, REQUEST_PLANE)


def test_a_policy_that_is_not_understood_is_an_error() -> None:
    """An address range would be taken for nobody."""
    objects = copy.deepcopy(SHIPPED["plain/gpu"])
    policy = named(objects, "NetworkPolicy", "dynamo-actor-metrics")
    policy["spec"]["ingress"][0]["from"][0] = {"ipBlock": {"cidr": "10.0.0.0/8"}}
    worker = next(peer_of(pod) for pod in pods_in(objects) if pod.is_worker)
    with pytest.raises(AssertionError, match="ipBlock"):
        may_connect(objects, PROMETHEUS, worker, 9090)
