"""The runtime: where the worker registers and how it is reached."""

from __future__ import annotations

from service.options.kinds import Choice, Integer, Text, Words
from service.options.option import Group, Option

_NAME = r"[A-Za-z0-9_-]+"
_ENDPOINT = Text("dyn://namespace.component.endpoint", rf"(dyn://)?{_NAME}\.{_NAME}\.{_NAME}")
# Above, the framework stops with a bare parse error (measured on 1.4.2).
_SYSTEM_PORT = Integer(-1, 32767, "the framework reads the port as a signed 16-bit number")

GENERAL: tuple[Option, ...] = (
    Option(
        name="namespace",
        flag="--namespace",
        env="DYN_NAMESPACE",
        kind=Text("letters, digits, dashes and underscores", _NAME, optional=False),
        default="dynamo",
        group=Group.RUNTIME,
        help="Namespace the worker registers in. DYN_NAMESPACE_WORKER_SUFFIX is appended after a dash.",
    ),
    Option(
        name="namespace_suffix",
        env="DYN_NAMESPACE_WORKER_SUFFIX",
        kind=Text("letters, digits, dashes and underscores", _NAME),
        default=None,
        group=Group.RUNTIME,
        help="Suffix of the namespace; the operator sets it during a rolling update.",
        in_file=False,
    ),
    Option(
        name="endpoint",
        flag="--endpoint",
        env="DYN_ENDPOINT",
        kind=_ENDPOINT,
        default=None,
        default_text="dyn://NAMESPACE.backend.generate; of a prefill worker dyn://NAMESPACE.prefill.generate",
        group=Group.RUNTIME,
        help="Full name of the served endpoint. It replaces namespace and suffix.",
    ),
    Option(
        name="kv_state_endpoint",
        flag="--kv-state-endpoint",
        env="DYN_KV_STATE_ENDPOINT",
        kind=_ENDPOINT,
        default=None,
        default_text="the served endpoint",
        group=Group.RUNTIME,
        help="Endpoint that owns the KV events and the recovery state of this worker.",
        framework_field="kv_state_endpoint",
    ),
    Option(
        name="discovery_backend",
        flag="--discovery-backend",
        env="DYN_DISCOVERY_BACKEND",
        kind=Choice(("kubernetes", "etcd", "file", "mem")),
        default="etcd",
        group=Group.RUNTIME,
        help="Where instances find each other. `file` uses the folder of DYN_FILE_KV, `etcd` ETCD_ENDPOINTS.",
    ),
    Option(
        name="request_plane",
        flag="--request-plane",
        env="DYN_REQUEST_PLANE",
        kind=Choice(("tcp", "nats")),
        default="tcp",
        group=Group.RUNTIME,
        help="How requests reach the worker.",
    ),
    Option(
        name="event_plane",
        flag="--event-plane",
        env="DYN_EVENT_PLANE",
        kind=Choice(("nats", "zmq")),
        default=None,
        default_text="the framework's choice (zmq)",
        group=Group.RUNTIME,
        help="How KV events are published.",
    ),
    Option(
        name="endpoint_types",
        flag="--endpoint-types",
        env="DYN_ENDPOINT_TYPES",
        deprecated_flags=("--dyn-endpoint-types",),
        kind=Words(("chat", "completions", "none")),
        default=("chat", "completions"),
        group=Group.RUNTIME,
        help="Routes of the frontend that lead here. `none` is refused: the framework ends such a worker.",
    ),
    Option(
        name="system_port",
        env="DYN_SYSTEM_PORT",
        kind=_SYSTEM_PORT,
        default=-1,
        default_text="-1 (no system server)",
        group=Group.RUNTIME,
        help="Port of health, metrics and control routes. -1: none; 0: any free port.",
        in_file=False,
    ),
    Option(
        name="system_host",
        env="DYN_SYSTEM_HOST",
        kind=Text("an address or host name", r"\S+"),
        default=None,
        default_text="127.0.0.1; on Kubernetes 0.0.0.0",
        group=Group.RUNTIME,
        help="Address the system server binds.",
        in_file=False,
    ),
)
