"""Variables of the upstream worker that have no flag."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.options.kinds import Boolean, Kind, Number, Text
from service.options.option import Group, Option, Refusal

if TYPE_CHECKING:
    from service.options.values import Value


def _variable(name: str, env: str, kind: Kind, default: Value, text: str, refusal: Refusal | None) -> Option:
    return Option(
        name=name,
        env=env,
        kind=kind,
        default=default,
        group=Group.LEGACY,
        help=text,
        refusal=refusal,
        in_file=False,
    )


_SNAPSHOT = Refusal(needs="snapshots of a loaded engine", instead="start the worker without them")
_HEALTH = Refusal(
    needs="the upstream engine monitor", instead="use --engine-hang-timeout", from_environment="warn"
)

LEGACY: tuple[Option, ...] = (
    Option(
        name="disable_gc",
        env="DYN_TRTLLM_SERVER_DISABLE_GC",
        env_aliases=("TRTLLM_SERVER_DISABLE_GC",),
        kind=Boolean(),
        default=False,
        group=Group.LEGACY,
        help="Switch Python's cyclic garbage collector off.",
        in_file=False,
    ),
    _variable(
        "lora_enabled",
        "DYN_LORA_ENABLED",
        Boolean(),
        False,
        "LoRA adapters and their routes.",
        Refusal(
            needs="routes that load adapters while the worker runs",
            instead="merge the adapter into the model",
        ),
    ),
    Option(
        name="test_logits_processor",
        env="DYN_ENABLE_TEST_LOGITS_PROCESSOR",
        env_aliases=("DYNAMO_ENABLE_TEST_LOGITS_PROCESSOR",),
        kind=Boolean(),
        default=False,
        group=Group.LEGACY,
        help='Make every answer "Hello world!", health checks included. For tests; not with synthetic.',
        in_file=False,
    ),
    _variable(
        "snapshot_control_dir", "DYN_SNAPSHOT_CONTROL_DIR", Text("a folder"), None, "Snapshots.", _SNAPSHOT
    ),
    _variable(
        "snapshot_restore_standby",
        "DYN_SNAPSHOT_RESTORE_STANDBY",
        Boolean(),
        False,
        "Wait for a snapshot to restore.",
        _SNAPSHOT,
    ),
    _variable(
        "engine_health_check_interval",
        "DYN_ENGINE_HEALTH_CHECK_INTERVAL",
        Number(),
        None,
        "Pace of the upstream engine monitor.",
        _HEALTH,
    ),
    _variable(
        "engine_health_check_timeout",
        "DYN_ENGINE_HEALTH_CHECK_TIMEOUT",
        Number(),
        None,
        "Patience of the upstream engine monitor.",
        _HEALTH,
    ),
    _variable(
        "engine_health_shutdown_timeout",
        "DYN_ENGINE_HEALTH_SHUTDOWN_TIMEOUT",
        Number(),
        None,
        "How the upstream engine monitor ends.",
        _HEALTH,
    ),
)
