"""Rules that look at more than one value, or at the machine: each refuses or warns, none changes a value."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from actors.admission import STEPS_UNDER_WAY
from service.options.nearest import advice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from service.options.engine_choice import EngineName
    from service.options.errors import Complaints
    from service.options.framework import FrameworkFacts
    from service.options.resolve import Resolution

# What would switch on the framework's own queue, whose requests are lost at SIGTERM (measured on 1.4.2).
QUEUE_VARIABLES = ("DYN_ENGINE_REQUEST_LIMIT", "DYN_DYNAMO_REQUEST_QUEUE_LIMIT")


def check_rules(
    resolution: Resolution,
    engine: EngineName,
    environ: Mapping[str, str],
    framework: FrameworkFacts,
    complaints: Complaints,
) -> None:
    """Apply every rule. engine: the one that will run."""
    _warn_about_framework_queue(environ, complaints)
    _check_endpoint_types(resolution, complaints)
    _check_endpoint_over_namespace(resolution, complaints)
    _check_parser(resolution, "dyn_tool_call_parser", framework.tool_parsers, complaints)
    _check_parser(resolution, "dyn_reasoning_parser", framework.reasoning_parsers, complaints)
    _check_template(resolution, complaints)
    _check_request_limit(resolution, complaints)
    _check_sizes(resolution, engine, complaints)
    _check_kv_events(resolution, engine, complaints)
    _warn_about_tensorrt_variables(engine, environ, complaints)


def _check_kv_events(resolution: Resolution, engine: EngineName, complaints: Complaints) -> None:
    wanted = resolution["publish_kv_events"]
    if wanted.value and engine == "synthetic":
        complaints.refuse(
            wanted.where, "true", "--engine synthetic has no KV cache whose blocks could be published"
        )


# What upstream's worker for TensorRT-LLM does with them, this one does not.
_NOT_DONE = {
    "DYN_FORWARDPASS_METRIC_PORT": "this worker publishes no metrics of forward passes",
    "DYN_TRTLLM_KV_EVENT_HOSTS": "this worker polls KV events, nobody streams them",
}
# Dynamo's operator sets it on every worker to this: nobody's wish, so nobody is told.
_OF_OPERATOR = ("DYN_FORWARDPASS_METRIC_PORT", "20380")


def _warn_about_tensorrt_variables(
    engine: EngineName, environ: Mapping[str, str], complaints: Complaints
) -> None:
    for name, why in _NOT_DONE.items():
        if engine == "trtllm" and name in environ and (name, environ[name]) != _OF_OPERATOR:
            complaints.warn(f"{name} has no effect: {why}")


def expand_template(name: str) -> Path:
    """The path of a chat template, as upstream expands it."""
    return Path(os.path.expandvars(name)).expanduser()


def _check_endpoint_types(resolution: Resolution, complaints: Complaints) -> None:
    if "none" in resolution.get("endpoint_types", tuple):
        found = resolution["endpoint_types"]
        complaints.refuse(
            found.where,
            found.option.show(found.value),
            "allowed: chat, completions or both; the framework ends a unified worker without a route",
        )


def _check_endpoint_over_namespace(resolution: Resolution, complaints: Complaints) -> None:
    endpoint = resolution["endpoint"]
    if endpoint.value is None:
        return
    for name in ("namespace", "namespace_suffix"):
        if resolution[name].is_given:
            complaints.warn(
                f"{resolution[name].where} has no effect: {endpoint.where} names the whole endpoint"
            )


def _check_parser(
    resolution: Resolution, name: str, names: Callable[[], Sequence[str]], complaints: Complaints
) -> None:
    wanted = resolution.find(name, str)
    if wanted is None:
        return
    known = sorted(names())
    if wanted not in known:
        guess = advice(wanted, known, "")
        allowed = f"allowed: one of {', '.join(known)}"
        complaints.refuse(resolution[name].where, wanted, f"{allowed}; {guess}" if guess else allowed)


def _check_template(resolution: Resolution, complaints: Complaints) -> None:
    name = resolution.find("custom_jinja_template", str)
    if name is not None and not expand_template(name).is_file():
        complaints.refuse(
            resolution["custom_jinja_template"].where,
            name,
            f"there is no file {str(expand_template(name))!r}",
        )


def _warn_about_framework_queue(environ: Mapping[str, str], complaints: Complaints) -> None:
    limit, queue = QUEUE_VARIABLES
    if limit in environ:
        complaints.warn(
            f"{limit} is honoured as --max-live and kept from the framework, whose queue loses requests"
        )
    if queue in environ:
        complaints.warn(
            f"{queue} has no effect: this worker admits or refuses at once and queues nothing there"
        )


def _check_request_limit(resolution: Resolution, complaints: Complaints) -> None:
    limit, live = resolution["engine_request_limit"], resolution["max_live"]
    if limit.value is not None and live.is_given and limit.value != live.value:
        complaints.refuse(
            limit.where,
            limit.value,
            f"differs from {live.where} {live.value}: they are one limit, give one of them",
        )


def _check_sizes(resolution: Resolution, engine: EngineName, complaints: Complaints) -> None:
    """Pairs of which the first must be at least the second, and so much more."""
    pairs = [("outbox_tokens", "chunk_tokens", 0), ("outbox_total_tokens", "outbox_tokens", STEPS_UNDER_WAY)]
    # TensorRT-LLM takes any of its own.
    if engine != "trtllm":
        pairs.insert(0, ("max_num_tokens", "max_batch_size", 0))
    for larger, smaller, more in pairs:
        large, small = resolution.find(larger, int), resolution.get(smaller, int)
        if large is not None and large < small + more:
            beyond = f", and {more} more for what comes when it is full" if more else ""
            complaints.refuse(
                resolution[larger].where,
                large,
                f"must be at least {resolution[smaller].where}, which is {small}{beyond}",
            )
