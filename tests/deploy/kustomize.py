"""What ``kubectl apply -k`` makes of a folder, for the keys that ours use; any other is an error here.

Left out on purpose: the hash at the end of generated names. Whoever refers to one gets the same hash.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

_KEYS = {"apiVersion", "kind", "namespace", "resources", "configMapGenerator", "images"}
_WITHOUT_NAMESPACE = {"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}


class KustomizeError(ValueError):
    """A kustomization that this reading of it, or kustomize itself, would not take."""


def documents(file: Path) -> list[Object]:
    """Every object of one file."""
    return documents_of(file.read_text(encoding="utf-8"))


def documents_of(text: str) -> list[Object]:
    """Every object of a text in YAML or JSON."""
    return [one for one in yaml.safe_load_all(text) if one is not None]


def read(folder: Path) -> Object:
    """The kustomization of a folder. Raises KustomizeError for keys that are not followed here."""
    (found,) = documents(folder / "kustomization.yaml")
    check_keys(folder.name, found)
    return found


def check_keys(name: str, spec: Object) -> None:
    """Raises KustomizeError for a key that is not followed here."""
    if unknown := spec.keys() - _KEYS:
        raise KustomizeError(f"{name}: nothing here follows {sorted(unknown)}")


def build(folder: Path) -> list[Object]:
    """Every object that would be applied, those of other folders included."""
    spec = read(folder)
    built = [one for name in spec.get("resources", []) for one in _resource((folder / name).resolve())]
    built += [_config_map(folder, one) for one in spec.get("configMapGenerator", [])]
    for image in spec.get("images", []):
        _set_image(built, image)
    if namespace := spec.get("namespace"):
        for one in built:
            _set_namespace(one, namespace)
    keys = [(one["kind"], one["metadata"]["name"]) for one in built]
    if len(set(keys)) != len(keys):
        raise KustomizeError(f"{folder.name}: two objects of one name in {keys}")
    return built


def _resource(path: Path) -> list[Object]:
    if path.is_dir():
        return build(path)
    if not path.is_file():
        raise KustomizeError(f"{path.name} is listed and not there")
    return documents(path)


def _config_map(folder: Path, generator: Object) -> Object:
    if unknown := generator.keys() - {"name", "literals", "files"}:
        raise KustomizeError(f"nothing here follows {sorted(unknown)} of a generator")
    data = dict(literal.split("=", 1) for literal in generator.get("literals", []))
    for name in generator.get("files", []):
        file = folder / name
        data[file.name] = file.read_text(encoding="utf-8")
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generator["name"]}, "data": data}


def containers(one: Object) -> Iterator[Object]:
    """Those of an object that makes pods, the ones that run before the others included."""
    pod = one.get("spec", {}).get("template", {}).get("spec", {})
    yield from pod.get("initContainers", [])
    yield from pod.get("containers", [])


def _set_image(built: list[Object], image: Object) -> None:
    named = [c for one in built for c in containers(one) if c["image"].partition(":")[0] == image["name"]]
    if not named:
        raise KustomizeError(f"no container has the image {image['name']}")
    for container in named:
        container["image"] = f"{image['newName']}:{image['newTag']}"


def _set_namespace(one: Object, namespace: str) -> None:
    if one["kind"] in _WITHOUT_NAMESPACE:
        return
    one["metadata"]["namespace"] = namespace
    for subject in one.get("subjects", []):
        if subject["kind"] == "ServiceAccount":
            subject["namespace"] = namespace
