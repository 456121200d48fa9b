"""Routing options a worker set may advertise from framework 1.6 on. Known by name; refused.

The backend SDK's WorkerConfig has no field for them in any supported version. Frontends read the same
variables, so a variable only warns: one environment file may serve both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.options.kinds import Boolean, Choice, Integer, Kind, Number, Text
from service.options.option import Group, Option, Refusal, flag_of

if TYPE_CHECKING:
    from service.options.values import Value

_ROUTER = Refusal(
    needs="a WorkerConfig that carries routing, which no supported framework has",
    instead="give it to the frontend",
    from_environment="warn",
)


def _router(name: str, kind: Kind, default: Value, text: str, env: str = "") -> Option:
    return Option(
        name=name,
        flag=flag_of(name),
        env=env or f"DYN_{name.upper()}",
        kind=kind,
        default=default,
        group=Group.ROUTER,
        help=text,
        refusal=_ROUTER,
        env_aliases=("DYN_ROUTER_KV_OVERLAP_SCORE_WEIGHT",)
        if name == "router_kv_overlap_score_weight"
        else (),
    )


_NUMBER = Number(0, 1e9)
_MODES = (
    "round-robin",
    "random",
    "power-of-two",
    "kv",
    "direct",
    "least-loaded",
    "device-aware-weighted",
)
_WORD = Text("a word", r"\S+")

ROUTER: tuple[Option, ...] = (
    _router("router_mode", Choice(_MODES), None, "How requests are distributed."),
    _router("router_session_affinity_ttl_secs", Integer(0), None, "How long a session keeps its worker."),
    _router("router_session_affinity_mode", _WORD, "hard", "How strictly a session keeps its worker."),
    _router("active_decode_blocks_threshold", Number(0, 1), None, "Share of busy KV blocks that refuses."),
    _router("active_prefill_tokens_threshold", Integer(0), None, "Prefill tokens that refuse."),
    _router("active_prefill_tokens_threshold_frac", _NUMBER, None, "The same as a share of a step."),
    _router("load_aware", Boolean(), False, "Route by load alone.", env="DYN_ROUTER_LOAD_AWARE"),
    _router("router_kv_overlap_score_credit", _NUMBER, 1.0, "Credit for a prefix on the device."),
    _router("router_kv_overlap_score_credit_decay", _NUMBER, 0.0, "How load lowers that credit."),
    _router(
        "router_kv_overlap_score_weight",
        _NUMBER,
        None,
        "Old name of the prefill load scale.",
        env="DYN_OVERLAP_SCORE_WEIGHT",
    ),
    _router("router_prefill_load_scale", _NUMBER, 1.0, "Weight of prefill load."),
    _router("router_decode_active_request_weight", _NUMBER, 0.0, "Cost of each active request."),
    _router("router_host_cache_hit_weight", Number(0, 1), 0.75, "Credit for a prefix in host memory."),
    _router("router_disk_cache_hit_weight", Number(0, 1), 0.25, "Credit for a prefix on disk."),
    _router("router_temperature", _NUMBER, 0.0, "Randomness of the choice."),
    _router("router_kv_events", Boolean(), True, "Use KV events.", env="DYN_ROUTER_USE_KV_EVENTS"),
    _router("router_replica_sync", Boolean(), False, "Synchronise replicas of the router."),
    _router("router_track_active_blocks", Boolean(), True, "Count active blocks."),
    _router("router_track_output_blocks", Boolean(), False, "Count output blocks."),
    _router("router_assume_kv_reuse", Boolean(), True, "Assume reuse of the KV cache."),
    _router("router_track_prefill_tokens", Boolean(), True, "Count prefill tokens."),
    _router("router_tracking_hash", _WORD, "public-xxh3-v1", "Hash of sequence identities."),
    _router("router_tracking_key_file", Text("a file"), None, "Key of that hash."),
    _router("router_tracking_key_id", _WORD, None, "Name of that key."),
    _router("router_prefill_load_model", Choice(("none", "aic")), "none", "Model of prefill load."),
    _router("router_ttl_secs", _NUMBER, 120.0, "Life of predicted blocks, in seconds."),
    _router("router_approximate_cache_policy", _WORD, "ttl", "How predicted blocks are forgotten."),
    _router("router_queue_threshold", _NUMBER, None, "Load at which requests queue."),
    _router("router_policy_config", Text("a file"), None, "Policies of the queue."),
    _router("router_conditional_disagg", Boolean(), False, "Disaggregate only when it pays off."),
    _router("router_conditional_disagg_config", Text("a text"), None, "When it pays off."),
    _router("router_prefill_policy", _WORD, None, "Policy for prefill workers."),
    _router("router_decode_policy", _WORD, None, "Policy for decode workers."),
    _router("router_event_threads", Integer(1, 4096), 4, "Threads of the indexer."),
    _router("router_queue_policy", Choice(("fcfs", "wspt")), "fcfs", "Order of the queue."),
    _router("use_remote_indexer", Boolean(), False, "Ask a remote indexer."),
    _router("enable_session_prefix_index", Boolean(), False, "Index prefixes of sessions."),
    _router("shared_cache_multiplier", _NUMBER, None, "Credit for a shared cache."),
    _router("shared_cache_type", Choice(("none", "hicache")), "none", "Kind of shared cache."),
    _router("router_predicted_ttl_secs", _NUMBER, None, "Life of predictions, in seconds."),
)
