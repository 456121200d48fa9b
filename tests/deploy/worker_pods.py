"""What the worker makes of a container of a manifest: its real option loader, on the manifest's words."""

from __future__ import annotations

from pathlib import Path

from service.options import Settings
from tests.deploy.kustomize import Object
from tests.deploy.pods import Pod, named
from tests.deploy.worker_settings import ON_CPU, ON_GPU, settings_of

# The device plugin of NVIDIA has this name for them.
GPU = "nvidia.com/gpu"


def is_on_gpu(container: Object) -> bool:
    """Whether it asks for one."""
    return GPU in container["resources"].get("limits", {})


def settings_in(pod: Pod, container: Object, folder: Path) -> Settings:
    """Files of ConfigMaps are written below the folder, where the arguments name their mounts.

    Nothing else of the arguments is changed. Raises ConfigError where the worker would end with code 2, and
    LookupError for a volume or ConfigMap that is not there.
    """
    program, *words = container["command"]
    assert program == "dynamo-actor-worker"
    words += container.get("args", [])
    mounts = write_config_files(pod, container, folder)
    for path, file in mounts.items():
        words = [str(file) if word == path else word for word in words]
    installed = ON_GPU if is_on_gpu(container) else ON_CPU
    return settings_of(words, pod.environment(container), installed)


def write_config_files(pod: Pod, container: Object, folder: Path) -> dict[str, Path]:
    """Path in the container -> the file with what the ConfigMap has there."""
    written: dict[str, Path] = {}
    for mount in container.get("volumeMounts", []):
        (volume,) = [one for one in pod.spec["volumes"] if one["name"] == mount["name"]]
        if "configMap" not in volume:
            continue
        config = named(pod.objects, "ConfigMap", volume["configMap"]["name"])
        for name, text in config["data"].items():
            file = folder / f"{config['metadata']['name']}-{name}"
            file.write_text(text, encoding="utf-8")
            written[f"{mount['mountPath']}/{name}"] = file
    return written
