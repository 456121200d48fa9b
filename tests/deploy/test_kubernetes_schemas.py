"""Promises about the form of the manifests: no field that the API would drop or refuse."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator

import kubernetes_validate  # type: ignore[import-untyped]  # published without types
import pytest
from jsonschema import Draft7Validator  # type: ignore[import-untyped]  # the same

from tests.deploy import kustomize
from tests.deploy.kustomize import Object
from tests.deploy.pods import PLAIN, REPOSITORY, VARIANTS, named, shipped
from tests.plugins.require_tools import MAY_BE_ABSENT

# The oldest that Dynamo's platform takes, the newest whose definitions are here, and one between.
RELEASES = ("1.30", "1.33", "1.37")
# Made from the operator's own definitions (Apache-2.0, ai-dynamo/dynamo); not part of this repository.
SCHEMAS = REPOSITORY.parent / "shared" / "deploy" / "schemas"
CUSTOM = {"DynamoGraphDeployment", "PodMonitor"}
SHIPPED = shipped() | {"plain/monitoring": kustomize.build(PLAIN / "monitoring")}


def graph_errors(graph: Object) -> list[str]:
    """What Dynamo's definition of its graphs says; skips where that is absent."""
    file = SCHEMAS / "dynamographdeployment-nvidia-v1beta1.json"
    if not file.is_file():
        pytest.skip(MAY_BE_ABSENT)
    schema = json.loads(file.read_text(encoding="utf-8"))
    return [f"{one.json_path}: {one.message}" for one in Draft7Validator(schema).iter_errors(graph)]


def built_in(objects: list[Object]) -> Iterator[Object]:
    """Those of Kubernetes itself."""
    return (one for one in objects if one["kind"] not in CUSTOM)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("path", SHIPPED)
def test_kubernetes_takes_every_field(path: str, release: str) -> None:
    """Each object of a built-in kind is valid for the API of a release, unknown fields being errors."""
    for one in built_in(SHIPPED[path]):
        kubernetes_validate.validate(one, release, strict=True)


@pytest.mark.parametrize("path", [path for path in SHIPPED if path.startswith("dynamo")])
def test_the_pods_of_a_graph_are_pods(path: str) -> None:
    """The operator passes a component's pod on, so it has to be one that Kubernetes takes."""
    for one in SHIPPED[path]:
        for component in one["spec"]["components"] if one["kind"] == "DynamoGraphDeployment" else []:
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, **component["podTemplate"]}
            kubernetes_validate.validate(pod, "1.31", strict=True)


@pytest.mark.parametrize("path", [path for path in SHIPPED if path.startswith("dynamo")])
def test_dynamo_takes_every_field_of_a_graph(path: str) -> None:
    """Each graph is valid for the operator's definition, unknown fields being errors."""
    (graph,) = [one for one in SHIPPED[path] if one["kind"] == "DynamoGraphDeployment"]
    assert graph_errors(graph) == []


def test_a_misspelt_field_is_found() -> None:
    """In a pod, and in a graph."""
    worker = copy.deepcopy(named(SHIPPED["plain/gpu"], "Deployment", "dynamo-actor-worker"))
    worker["spec"]["template"]["spec"]["terminationGracePeriodSecond"] = 150
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(worker, "1.31", strict=True)
    graph = copy.deepcopy(named(SHIPPED["dynamo/agg.yaml"], "DynamoGraphDeployment", "actor-agg"))
    graph["spec"]["components"][1]["runtimeVersionOverides"] = "1.4.2"
    assert len(graph_errors(graph)) == 1


def test_every_file_is_listed_and_every_listed_file_is_there() -> None:
    """Nothing lies beside a kustomization without being applied."""
    for folder in [PLAIN / name for name in (*VARIANTS, "base", "monitoring")]:
        spec = kustomize.read(folder)
        files = {name for one in spec.get("configMapGenerator", []) for name in one.get("files", [])}
        listed = {name for name in spec["resources"] if not (folder / name).is_dir()} | files
        there = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
        assert there - {"kustomization.yaml"} == listed


def test_everything_goes_into_one_namespace() -> None:
    """Each variant says which, and the base's binding means the account there."""
    for name in VARIANTS:
        objects = SHIPPED[f"plain/{name}"]
        assert {one["metadata"]["namespace"] for one in objects} == {"dynamo"}


@pytest.mark.parametrize("key", ["patches", "namePrefix", "commonLabels", "helmCharts"])
def test_what_the_tests_do_not_follow_is_an_error(key: str) -> None:
    """A kustomization with another key would be tested as something that it is not."""
    spec = kustomize.read(PLAIN / "cpu")
    assert key not in spec
    with pytest.raises(kustomize.KustomizeError, match=key):
        kustomize.check_keys("cpu", spec | {key: []})
