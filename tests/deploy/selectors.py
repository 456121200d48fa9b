"""Who selects which pods, in all that is applied together: findings as sentences, none when all is well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.deploy.kustomize import Object
from tests.deploy.pods import Pod, pods_in


def selects(selector: Object, labels: Mapping[str, str]) -> bool:
    """matchLabels only: an expression would be taken for something it is not."""
    assert selector.keys() <= {"matchLabels"}, f"nothing here follows {sorted(selector)}"
    wanted: Mapping[str, str] = selector.get("matchLabels", {})
    return wanted.items() <= labels.items()


def selected(pods: list[Pod], selector: Object) -> list[Pod]:
    """In the order of the files."""
    return [pod for pod in pods if selects(selector, pod.labels)]


def findings(objects: list[Object]) -> list[str]:
    """What is wrong, a sentence each."""
    pods = pods_in(objects)
    return [found for one in objects for found in _of(one, pods)]


def _of(one: Object, pods: list[Pod]) -> Iterator[str]:
    name = f"{one['kind']} {one['metadata']['name']}"
    match one["kind"]:
        case "Deployment":
            yield from _own(name, one, pods)
        case "PodDisruptionBudget":
            if len(selected(pods, one["spec"]["selector"])) != 1:
                yield f"{name} selects the pods of {_owners(pods, one['spec']['selector'])}, not of one owner"
        case "Service":
            yield from _service(name, one, pods)
        case "PodMonitor":
            yield from _monitor(name, one, pods)
        case "NetworkPolicy":
            yield from _policy(name, one, pods)
        case _:
            return


def _owners(pods: list[Pod], selector: Object) -> list[str]:
    return [pod.owner for pod in selected(pods, selector)]


def _own(name: str, one: Object, pods: list[Pod]) -> Iterator[str]:
    owner = one["metadata"]["name"]
    if (owners := _owners(pods, one["spec"]["selector"])) != [owner]:
        yield f"{name} selects the pods of {owners}"
    for spread in one["spec"]["template"]["spec"].get("topologySpreadConstraints", []):
        if (owners := _owners(pods, spread["labelSelector"])) != [owner]:
            yield f"{name} spreads the pods of {owners}"


def _service(name: str, one: Object, pods: list[Pod]) -> Iterator[str]:
    chosen = selected(pods, {"matchLabels": one["spec"]["selector"]})
    if not chosen:
        yield f"{name} selects nothing"
    for port in one["spec"]["ports"]:
        yield from _ports(name, chosen, port["targetPort"])


def _monitor(name: str, one: Object, pods: list[Pod]) -> Iterator[str]:
    chosen = selected(pods, one["spec"]["selector"])
    if not chosen:
        yield f"{name} selects nothing"
    for endpoint in one["spec"]["podMetricsEndpoints"]:
        yield from _ports(name, chosen, endpoint["port"])


def _policy(name: str, one: Object, pods: list[Pod]) -> Iterator[str]:
    chosen = selected(pods, one["spec"]["podSelector"])
    if not chosen:
        yield f"{name} selects nothing"
    for rule in one["spec"].get("ingress", []):
        for port in rule.get("ports", []):
            yield from _ports(name, chosen, port["port"])
    for rule in [*one["spec"].get("ingress", []), *one["spec"].get("egress", [])]:
        for peer in [*rule.get("from", []), *rule.get("to", [])]:
            if "podSelector" in peer and not selected(pods, peer["podSelector"]):
                yield f"{name} names pods that are not there"


def _ports(name: str, chosen: list[Pod], port: str | int) -> Iterator[str]:
    for pod in chosen:
        if port not in pod.ports and port not in pod.ports.values():
            yield f"{name} means port {port}, which pods of {pod.owner} do not have"
