"""Promises about the kustomizations, held against kustomize itself, as kubectl has it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy import kustomize
from tests.deploy.pods import PLAIN, VARIANTS
from tests.e2e.servers import tool

# What ends the name of a generated ConfigMap.
HASHED = re.compile(r"\b(dynamo-actor-(?:common|engine))-([0-9a-z]{10})\b")
GENERATED = re.compile(r"\bdynamo-actor-(?:common|engine)\b(?!-[0-9a-z]{10}\b)")


def built_by_kubectl(folder: Path) -> str:
    """What ``kubectl apply -k`` would send."""
    run = subprocess.run(
        [tool("kubectl"), "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def by_name(objects: list[kustomize.Object]) -> dict[tuple[str, str], kustomize.Object]:
    """The order is kustomize's own."""
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def names_of(text: str) -> set[str]:
    """Of the generated ConfigMaps, with what their content adds to them."""
    return {found[0] for found in HASHED.finditer(text)}


@pytest.mark.parametrize("name", [*VARIANTS, "monitoring"])
def test_kustomize_makes_what_the_other_tests_look_at(name: str) -> None:
    """Object for object, but for the hashes."""
    text = built_by_kubectl(PLAIN / name)
    made = kustomize.documents_of(HASHED.sub(r"\1", text))
    ours = kustomize.build(PLAIN / name)
    assert by_name(made) == by_name(ours)


@pytest.mark.parametrize("name", VARIANTS)
def test_pods_refer_to_generated_names_by_their_hash(name: str) -> None:
    """No reference is left without one, in files of the variant and in those of the base."""
    text = built_by_kubectl(PLAIN / name)
    assert names_of(text)
    assert GENERATED.findall(text) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "changed"),
    [
        ("gpu/engine/agg.yaml", "max_batch_size: 16", "max_batch_size: 32", "dynamo-actor-engine"),
        (
            "base/kustomization.yaml",
            "DYN_LOGGING_JSONL=true",
            "DYN_LOGGING_JSONL=false",
            "dynamo-actor-common",
        ),
    ],
)
def test_changed_arguments_make_new_pods(file: str, old: str, new: str, changed: str, tmp_path: Path) -> None:
    """The ConfigMap gets another name, so the pods that name it are others; the rest stays as it is."""
    copy = tmp_path / "plain"
    shutil.copytree(PLAIN, copy)
    before = names_of(built_by_kubectl(copy / "gpu"))
    text = (copy / file).read_text(encoding="utf-8")
    assert old in text
    (copy / file).write_text(text.replace(old, new), encoding="utf-8")
    after = names_of(built_by_kubectl(copy / "gpu"))
    assert {name.rpartition("-")[0] for name in before - after} == {changed}
    assert len(before) == len(after) == 2


def test_another_namespace_is_one_line(tmp_path: Path) -> None:
    """Everything follows it, the account that the Role is bound to as well."""
    copy = tmp_path / "plain"
    shutil.copytree(PLAIN, copy)
    file = copy / "cpu" / "kustomization.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("namespace: dynamo", "namespace: other"), encoding="utf-8")
    objects = kustomize.documents_of(built_by_kubectl(copy / "cpu"))
    assert {one["metadata"]["namespace"] for one in objects} == {"other"}
    (binding,) = [one for one in objects if one["kind"] == "RoleBinding"]
    assert [subject["namespace"] for subject in binding["subjects"]] == ["other"]
