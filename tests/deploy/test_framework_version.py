"""One version of Dynamo in everything that is deployed: the one that everything was tested with."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.deploy import dockerfile, kustomize
from tests.deploy.lock_file import locked
from tests.deploy.pods import DEPLOY, REPOSITORY, Pod, pods_in, shipped
from tests.deploy.worker_pods import is_on_gpu

VERSION = locked("ai-dynamo")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SHIPPED = shipped()
PODS = {f"{path} {pod.owner}": pod for path, objects in SHIPPED.items() for pod in pods_in(objects)}
GRAPHS = [path for path in SHIPPED if path.startswith("dynamo")]
FRONTEND = f"nvcr.io/nvidia/ai-dynamo/dynamo-frontend:{VERSION}"
OURS = f"registry.example.com/dynamo-actor-worker:{PROJECT['version']}"
# An image of the framework, wherever it is named with a tag.
IMAGE = re.compile(r"nvcr\.io/nvidia/ai-dynamo/[\w-]+:([\w.-]+)")


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_every_container_runs_what_was_tested(pod: Pod) -> None:
    """The framework's frontend of the lock file's version, and the worker of this repository's."""
    images = {one["image"] for one in kustomize.containers({"spec": {"template": {"spec": pod.spec}}})}
    ours = OURS if is_on_gpu(pod.main) else f"{OURS}-cpu"
    assert images == {ours if pod.is_worker else FRONTEND}


@pytest.mark.parametrize("path", GRAPHS)
def test_the_operator_is_told_the_version_where_no_tag_says_it(path: str) -> None:
    """It sets variables by it: the tag of a worker is the worker's own version."""
    (graph,) = [one for one in SHIPPED[path] if one["kind"] == "DynamoGraphDeployment"]
    for component in graph["spec"]["components"]:
        said = component.get("runtimeVersionOverride")
        assert said == (None if component["type"] == "frontend" else VERSION), component["name"]


def test_every_image_of_the_framework_has_that_version() -> None:
    """In manifests, the Dockerfile, and words about them."""
    texts = {
        file: file.read_text(encoding="utf-8")
        for file in DEPLOY.rglob("*")
        if file.suffix != ".pyc" and file.is_file()
    }
    named = {(file.name, tag) for file, text in texts.items() for tag in IMAGE.findall(text)}
    assert {name for name, _ in named} >= {"Dockerfile", "agg.yaml", "agg-cpu.yaml", "disagg.yaml"}
    assert {tag for _, tag in named} == {VERSION}


def test_a_tag_is_said_in_one_place_of_a_variant() -> None:
    """Its files name images without one, and the kustomization gives it: a new version is one line."""
    for file in (DEPLOY / "kubernetes" / "plain").glob("*/*.yaml"):
        for image in re.findall(r"^\s*(?:- )?image: (\S+)$", file.read_text(encoding="utf-8"), re.MULTILINE):
            assert ":" not in image, file


def test_the_images_are_built_of_it() -> None:
    """The one for GPUs stands on Dynamo's own; the other one installs the lock file."""
    arguments, stages = dockerfile.read()
    assert IMAGE.findall(arguments["GPU_IMAGE"]) == [VERSION]
    assert any("--requirement /tmp/lock.txt" in text for text in stages["cpu-environment"].all("RUN"))
