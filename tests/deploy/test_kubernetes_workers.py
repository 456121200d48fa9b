"""Promises about workers: what a pod is, asks of its node and is given agrees with the worker's arguments."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest

from protocols.spec import Stage
from service.options.engine_arguments import EngineArguments
from tests.deploy.pods import Pod, named, pods_in, shipped
from tests.deploy.worker_pods import GPU, is_on_gpu, settings_in

SHIPPED = shipped()
WORKERS = {
    f"{path} {pod.owner}": pod
    for path, objects in SHIPPED.items()
    for pod in pods_in(objects)
    if pod.is_worker
}
ON_GPU = {name: pod for name, pod in WORKERS.items() if is_on_gpu(pod.main)}
PLAIN = {name: pod for name, pod in WORKERS.items() if not pod.is_of_graph}
# The operator's word for a pod, and what the worker in it does of a request.
ROLES = {"worker": Stage.WHOLE, "prefill": Stage.PREFILL, "decode": Stage.DECODE}
# What TensorRT-LLM spreads over GPUs: one for each of the product.
SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size")


def arguments_of(pod: Pod, folder: Path) -> EngineArguments:
    """Of TensorRT-LLM, as the worker would hand them over."""
    found = settings_in(pod, pod.main, folder).engine_arguments
    assert found is not None
    return found


@pytest.mark.parametrize("pod", WORKERS.values(), ids=WORKERS)
def test_a_pod_does_what_it_is_called(pod: Pod, tmp_path: Path) -> None:
    """Two prefill workers, one of them called decode, answer nobody."""
    settings = settings_in(pod, pod.main, tmp_path)
    assert settings.runtime.role is ROLES[pod.kind]
    # The operator names the component after the kind, and so does the worker.
    assert pod.owner.endswith(pod.kind)


@pytest.mark.parametrize("path", SHIPPED)
def test_prompts_and_answers_have_a_worker_each(path: str) -> None:
    """Either one that does all of a request, or one of each of the others."""
    kinds = sorted(pod.kind for pod in pods_in(SHIPPED[path]) if pod.is_worker)
    assert kinds in (["worker"], ["decode", "prefill"])


@pytest.mark.parametrize("pod", ON_GPU.values(), ids=ON_GPU)
def test_a_pod_asks_for_as_many_gpus_as_its_engine_uses(pod: Pod, tmp_path: Path) -> None:
    """Fewer, and the engine does not start; more, and they are paid for and idle."""
    arguments = arguments_of(pod, tmp_path)
    used = prod(int(str(arguments.value(size) or 1)) for size in SIZES)
    assert int(pod.main["resources"]["limits"][GPU]) == used


@pytest.mark.parametrize("pod", WORKERS.values(), ids=WORKERS)
def test_a_pod_on_gpus_and_no_other_may_run_on_their_nodes(pod: Pod) -> None:
    """They are kept free by a taint with the name of the resource, as clouds and the device plugin set it."""
    taint = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
    assert pod.spec.get("tolerations", []) == ([taint] if is_on_gpu(pod.main) else [])


@pytest.mark.parametrize("pod", ON_GPU.values(), ids=ON_GPU)
def test_only_a_worker_that_reads_prompts_does_not_overlap_its_steps(pod: Pod, tmp_path: Path) -> None:
    """By the file that this pod is given: one ConfigMap may hold that of another kind, too."""
    arguments = arguments_of(pod, tmp_path)
    assert (arguments.value("disable_overlap_scheduler") is True) is (pod.kind == "prefill")
    has_transfers = arguments.value("cache_transceiver_config.backend") is not None
    assert has_transfers is (pod.kind in ("prefill", "decode"))


@pytest.mark.parametrize("path", [path for path in SHIPPED if "disagg" in path])
def test_both_ends_of_a_transfer_agree(path: str, tmp_path: Path) -> None:
    """Back-end, size of a block and the model: a KV cache of another make cannot be read."""
    ends = [settings_in(pod, pod.main, tmp_path) for pod in pods_in(SHIPPED[path]) if pod.is_worker]
    assert len(ends) == 2
    seen = {
        (
            end.model.model,
            end.model.served_model_name,
            end.engine_arguments and end.engine_arguments.kv_block_tokens,
            end.engine_arguments and end.engine_arguments.value("cache_transceiver_config.backend"),
        )
        for end in ends
    }
    assert len(seen) == 1


@pytest.mark.parametrize("pod", PLAIN.values(), ids=PLAIN)
def test_what_is_checked_is_what_is_served(pod: Pod, tmp_path: Path) -> None:
    """Word for word, from the same image, variables and files: what differs would not have been checked."""
    (check,) = pod.spec["initContainers"]
    assert settings_in(pod, check, tmp_path).action == "check_config"
    for key in ("image", "args", "env", "envFrom", "resources", "securityContext"):
        assert check[key] == pod.main[key], key
    assert check["command"] == [*pod.main["command"], "--check-config"]
    shared = [mount for mount in pod.main["volumeMounts"] if mount["mountPath"] != "/dev/shm"]
    assert check["volumeMounts"] == shared


@pytest.mark.parametrize("pod", PLAIN.values(), ids=PLAIN)
def test_shared_memory_is_memory(pod: Pod) -> None:
    """Else it is a folder on the node's disk. Dynamo's operator makes that of a graph itself."""
    (name,) = [mount["name"] for mount in pod.main["volumeMounts"] if mount["mountPath"] == "/dev/shm"]
    (volume,) = [volume for volume in pod.spec["volumes"] if volume["name"] == name]
    assert volume["emptyDir"]["medium"] == "Memory"


@pytest.mark.parametrize("path", [path for path in SHIPPED if path.startswith("plain")])
def test_a_pod_is_called_the_same_everywhere(path: str) -> None:
    """Its Deployment's label of the component is the kind that the operator would give it."""
    for pod in pods_in(SHIPPED[path]):
        template = named(SHIPPED[path], "Deployment", pod.owner)["spec"]["template"]
        assert template["metadata"]["labels"]["app.kubernetes.io/component"] == pod.kind
