"""Options of this worker alone: engines, admission, shutdown, operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from service.options.kinds import Boolean, Choice, Integer, Kind, Number, SecretText, Text
from service.options.option import Group, Option, flag_of
from service.options.processor_kind import Processors

if TYPE_CHECKING:
    from service.options.engine_choice import EngineName
    from service.options.values import Value

_SECONDS = Number(0, 86400, with_minimum=False)


def _ours(group: Group, name: str, kind: Kind, default: Value, text: str, **more: Any) -> Option:
    """more: other fields of the option."""
    return Option(
        name=name,
        flag=flag_of(name),
        env=f"DYN_ACTOR_{name.upper()}",
        kind=kind,
        default=default,
        group=group,
        help=text,
        **more,
    )


def _with_trtllm(value: Value) -> tuple[tuple[EngineName, Value], ...]:
    """The default with that engine."""
    return (("trtllm", value),)


OURS: tuple[Option, ...] = (
    _ours(
        Group.ENGINE,
        "engine",
        Choice(("auto", "trtllm", "torch", "synthetic")),
        "auto",
        "What generates. `auto`: trtllm where the distribution tensorrt-llm is installed, else torch, unless "
        "a TensorRT-LLM option was given.",
    ),
    _ours(
        Group.ENGINE,
        "engine_queue",
        Integer(0, 65536),
        0,
        "Sequences submitted beyond the batch size, for engines with a queue of their own: a slot that gets "
        "free is taken in the next step.",
        engine_defaults=_with_trtllm(16),
    ),
    _ours(
        Group.ENGINE,
        "engine_hang_timeout",
        Number(1, 86400),
        30.0,
        "Seconds without any progress, requests in flight, after which the engine counts as dead.",
        engine_defaults=_with_trtllm(300.0),
    ),
    _ours(
        Group.ENGINE,
        "seed",
        Integer(0, 2**63 - 1),
        None,
        "Seed of requests that bring none.",
        default_text="random",
    ),
    _ours(
        Group.ENGINE,
        "trust_remote_code",
        Boolean(),
        False,
        "Run Python code that comes with a model. Off unless you wrote the model.",
    ),
    Option(
        name="logits_processor",
        flag="--logits-processor",
        env="DYN_ACTOR_LOGITS_PROCESSORS",
        kind=Processors(),
        default=None,
        default_text="none",
        group=Group.ENGINE,
        help="A logits processor that requests may choose (docs/logits-processors.md). May be repeated.",
        is_repeatable=True,
    ),
    _ours(
        Group.TORCH,
        "dtype",
        Choice(("auto", "float32", "bfloat16")),
        "auto",
        "Number format of the weights. `auto`: float32 on a CPU, bfloat16 on a GPU.",
    ),
    _ours(Group.TORCH, "device", Choice(("auto", "cpu", "cuda")), "auto", "Where the model runs."),
    _ours(Group.TORCH, "threads", Integer(0, 1024), 0, "CPU threads of the model; 0 takes all cores."),
    _ours(
        Group.TORCH,
        "memory_gb",
        Number(0, 65536, with_minimum=False),
        None,
        "Memory for weights and KV cache together, in GB.",
        default_text="a quarter of the free memory for the KV cache",
    ),
    _ours(
        Group.SYNTHETIC,
        "synthetic_step_ms",
        Number(0, 10000),
        20.0,
        "Milliseconds of one step; 0 is as fast as it can.",
    ),
    _ours(
        Group.ADMISSION,
        "max_live",
        Integer(1, 1 << 20),
        1024,
        "Requests alive at once, waiting and running. More are refused with 429.",
        engine_defaults=_with_trtllm(4096),
    ),
    _ours(
        Group.ADMISSION,
        "deadline",
        _SECONDS,
        None,
        "Seconds every request has from its arrival.",
        default_text="none",
    ),
    _ours(
        Group.ADMISSION,
        "stall_timeout",
        _SECONDS,
        30.0,
        "Seconds tokens may wait for their reader before the request is ended.",
    ),
    _ours(Group.ADMISSION, "chunk_tokens", Integer(1, 4096), 32, "Most tokens in one chunk of an answer."),
    _ours(
        Group.ADMISSION,
        "outbox_tokens",
        Integer(1, 1 << 20),
        256,
        "Tokens that may wait for the reader of one request before it is paused; at least --chunk-tokens.",
    ),
    _ours(
        Group.ADMISSION,
        "outbox_total_tokens",
        Integer(1, 2**40),
        4 * 1024 * 1024,
        "Sum of all outboxes, reserved at admission; at least --outbox-tokens. An engine that cannot pause "
        "(trtllm) reserves all that a request may say: max_tokens, or the rest of the context, times n.",
        # As many requests as may be alive, each with 131,072 tokens: what is not said takes no memory.
        engine_defaults=_with_trtllm(4096 * 131_072),
    ),
    _ours(
        Group.SHUTDOWN,
        "drain_timeout",
        Number(0, 86400),
        35.0,
        "Seconds running requests get to finish, after the grace period.",
    ),
    Option(
        name="termination_grace",
        env="DYN_ACTOR_TERMINATION_GRACE_SECS",
        kind=Number(0, 864000, with_minimum=False),
        default=None,
        default_text="not checked",
        group=Group.SHUTDOWN,
        help="Seconds from SIGTERM to SIGKILL (terminationGracePeriodSeconds, TimeoutStopSec). Only checked.",
        in_file=False,
    ),
    Option(
        name="grace_period",
        env="DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS",
        kind=Number(0, 86400),
        default=5.0,
        group=Group.SHUTDOWN,
        help="Seconds from the signal to the start of the drain: time for routers to look away.",
        in_file=False,
    ),
    Option(
        name="worker_timeout",
        env="DYN_WORKER_GRACEFUL_SHUTDOWN_TIMEOUT",
        # Anything but a whole number is silently taken for the default of 30 s (measured on 1.4.2).
        kind=Integer(1, 1_000_000, "the framework ignores fractions"),
        default=None,
        default_text="drain timeout + 15",
        group=Group.SHUTDOWN,
        help="Seconds from the end of the grace period to the framework's hard exit.",
        in_file=False,
    ),
    Option(
        name="prefill_drain_timeout",
        env="DYN_PREFILL_DRAIN_TIMEOUT_S",
        kind=Number(0, 86400),
        default=None,
        default_text="the drain timeout",
        group=Group.SHUTDOWN,
        help="Seconds the framework waits for the transfers of a prefill worker.",
        in_file=False,
    ),
    Option(
        name="config",
        flag="--config",
        env="DYN_ACTOR_CONFIG",
        kind=Text("a .yaml, .yml or .toml file"),
        default=None,
        group=Group.OPERATION,
        help="File of options: their names, with dashes or underscores, as keys.",
        in_file=False,
    ),
    Option(
        name="dump_config_to",
        flag="--dump-config-to",
        env="DYN_DUMP_CONFIG_TO",
        kind=Text("a file"),
        default=None,
        group=Group.OPERATION,
        help="Write the resolved configuration to this file at the start (JSON, secrets masked).",
    ),
    Option(
        name="cache_dir",
        env="DYN_ACTOR_CACHE_DIR",
        kind=Text("a folder"),
        default=None,
        default_text="dynamo-actor-worker in the user's cache folder",
        group=Group.MODEL,
        help="Where built-in models are prepared.",
        in_file=False,
    ),
    Option(
        name="control_token",
        env="DYN_ACTOR_CONTROL_TOKEN",
        kind=SecretText(),
        default=None,
        default_text="none: control routes work on loopback only",
        group=Group.OPERATION,
        help="Secret that control routes ask for. From the environment or a file only.",
    ),
    *(
        Option(
            name=name,
            flag=flag_of(name),
            kind=Boolean(),
            default=False,
            group=Group.OPERATION,
            help=text,
            in_file=False,
        )
        for name, text in (
            ("print_config", "Print every option, its value and its source, and exit."),
            (
                "check_config",
                "Check everything that can be checked without loading the model, and exit (0 or 2).",
            ),
            ("version", "Print the version and exit."),
            ("help", "Print this help and exit."),
        )
    ),
)
