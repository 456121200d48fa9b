"""Who may connect to whom, as the NetworkPolicies of a variant say it.

The rule of the API: a pod that a policy of a direction selects may do only what some policy of that
direction allows it; the two ends of a connection both have to allow it. Pods that nobody selects may all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.deploy.kustomize import Object
from tests.deploy.pods import Pod
from tests.deploy.selectors import selects


@dataclass(frozen=True, slots=True)
class Peer:
    """One end of a connection. labels: of the pod; None: no pod of this cluster. namespace: its own."""

    namespace: str
    labels: Mapping[str, str] | None = None
    ports: Mapping[str, int] = field(default_factory=dict)


def peer_of(pod: Pod) -> Peer:
    """A pod of the variant."""
    return Peer("dynamo", pod.labels, pod.ports)


def may_connect(objects: list[Object], source: Peer, target: Peer, port: int, protocol: str = "TCP") -> bool:
    """Both ends allow it."""
    policies = [one for one in objects if one["kind"] == "NetworkPolicy"]
    return _allows(policies, "Egress", source, target, (port, protocol)) and _allows(
        policies, "Ingress", target, source, (port, protocol)
    )


def _allows(policies: list[Object], way: str, end: Peer, other: Peer, port: tuple[int, str]) -> bool:
    mine = [one for one in policies if way in one["spec"]["policyTypes"] and _is_selected(one, end)]
    if not mine:
        return True
    rules = [rule for one in mine for rule in one["spec"].get(way.lower(), [])]
    # Named ports are those of the pod that is connected to.
    names = end.ports if way == "Ingress" else other.ports
    return any(_is_peer(rule, way, end, other) and _is_port(rule, names, port) for rule in rules)


def _is_selected(policy: Object, end: Peer) -> bool:
    is_ours = end.namespace == policy["metadata"]["namespace"] and end.labels is not None
    return is_ours and selects(policy["spec"]["podSelector"], end.labels or {})


def _is_peer(rule: Object, way: str, end: Peer, other: Peer) -> bool:
    peers = rule.get("from" if way == "Ingress" else "to")
    return peers is None or any(_is_one(peer, end, other) for peer in peers)


def _is_one(peer: Object, end: Peer, other: Peer) -> bool:
    assert peer.keys() <= {"podSelector", "namespaceSelector"}, f"nothing here follows {sorted(peer)}"
    if other.labels is None:
        return False
    if "namespaceSelector" in peer:
        if not selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": other.namespace}):
            return False
    elif other.namespace != end.namespace:
        return False
    return selects(peer.get("podSelector", {}), other.labels)


def _is_port(rule: Object, names: Mapping[str, int], port: tuple[int, str]) -> bool:
    ports = rule.get("ports")
    if ports is None:
        return True
    number, protocol = port
    return any(names.get(one["port"], one["port"]) == number and one["protocol"] == protocol for one in ports)
