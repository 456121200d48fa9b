"""The model and its limits: options that every engine has."""

from __future__ import annotations

from actors.engines.trtllm_facts import MAX_BATCH_SIZE, MAX_NUM_TOKENS
from service.options.kinds import Boolean, Choice, Integer, Text
from service.options.option import Group, Option, Refusal

_ROLES = Refusal(
    needs="an engine that can hand a KV cache over to another worker, which is TensorRT-LLM",
    instead="serve aggregated (agg or pd)",
    accepts=("pd",),
    engines=("trtllm",),
    engine_values=("prefill", "decode"),
)
_XGRAMMAR = Refusal(
    needs="TensorRT-LLM",
    instead="leave it out: the engine torch guides with llguidance",
    accepts=("llguidance",),
    engines=("trtllm",),
    engine_values=("xgrammar",),
)

ENGINE: tuple[Option, ...] = (
    Option(
        name="model",
        flag="--model",
        env="DYN_TRTLLM_MODEL",
        aliases=("--model-path",),
        kind=Text("a folder, a hub id or a built-in name", optional=False),
        default="smollm2-135m",
        engine_defaults=(("trtllm", "TinyLlama/TinyLlama-1.1B-Chat-v1.0"),),
        group=Group.MODEL,
        help="What to serve: a model folder, a hub id, or a built-in name.",
    ),
    Option(
        name="served_model_name",
        flag="--served-model-name",
        env="DYN_TRTLLM_SERVED_MODEL_NAME",
        kind=Text("one name without blanks and commas", r"[^\s,]+"),
        default=None,
        default_text="derived from the model",
        group=Group.MODEL,
        help="Name clients use in `model`.",
    ),
    Option(
        name="max_batch_size",
        flag="--max-batch-size",
        env="DYN_TRTLLM_MAX_BATCH_SIZE",
        aliases=("--max-num-seqs",),
        kind=Integer(1, 65536),
        default=64,
        engine_defaults=(("trtllm", MAX_BATCH_SIZE),),
        group=Group.MODEL,
        help="Sequences that run at once; a request with n choices takes n. TensorRT-LLM counts each "
        "attention-DP rank for itself.",
    ),
    Option(
        name="max_num_tokens",
        flag="--max-num-tokens",
        env="DYN_TRTLLM_MAX_NUM_TOKENS",
        kind=Integer(1, 1 << 20),
        default=None,
        default_text="512, or the batch size if that is more",
        engine_defaults=(("trtllm", MAX_NUM_TOKENS),),
        group=Group.MODEL,
        help="Tokens of one engine step, prefill and decode together; at least the batch size (torch).",
    ),
    Option(
        name="max_seq_len",
        flag="--max-seq-len",
        env="DYN_TRTLLM_MAX_SEQ_LEN",
        kind=Integer(2, 1 << 24),
        default=None,
        default_text="the model's context length",
        group=Group.MODEL,
        help="Prompt and output of one sequence, in tokens.",
    ),
    Option(
        name="kv_block_size",
        flag="--kv-block-size",
        env="DYN_TRTLLM_KV_BLOCK_SIZE",
        kind=Integer(1, 1024),
        default=32,
        group=Group.MODEL,
        help="Tokens of one KV cache block; also advertised to routers.",
    ),
    Option(
        name="disaggregation_mode",
        flag="--disaggregation-mode",
        env="DYN_TRTLLM_DISAGGREGATION_MODE",
        kind=Choice(("agg", "pd", "prefill", "decode"), answered=("encode", "prefill_and_decode")),
        default="agg",
        group=Group.MODEL,
        help="Role of the worker. `agg` and `pd` both mean aggregated. Prefill registers the component "
        "`prefill` unless an endpoint is given.",
        refusal=_ROLES,
    ),
    Option(
        name="publish_kv_events",
        flag="--publish-kv-events",
        env="DYN_TRTLLM_PUBLISH_KV_EVENTS",
        deprecated_flags=("--publish-events-and-metrics",),
        deprecated_envs=("DYN_TRTLLM_PUBLISH_EVENTS_AND_METRICS",),
        kind=Boolean(),
        default=False,
        group=Group.MODEL,
        help="Tell routers what lies in the KV cache, and the framework's gauges how full it is. Up to "
        "framework 1.5, and in its old spelling, it means --publish-metrics, too.",
    ),
    Option(
        name="guided_decoding_backend",
        flag="--guided-decoding-backend",
        env="DYN_TRTLLM_GUIDED_DECODING_BACKEND",
        kind=Choice(("xgrammar", "llguidance")),
        default=None,
        default_text="the engine's own (torch: llguidance, trtllm: none, which refuses constraints)",
        group=Group.MODEL,
        help="Library that guides constrained output. With it TensorRT-LLM reads the model's tokenizer.",
        refusal=_XGRAMMAR,
    ),
    Option(
        name="engine_request_limit",
        flag="--engine-request-limit",
        env="DYN_ENGINE_REQUEST_LIMIT",
        kind=Integer(1, 1 << 20),
        default=None,
        group=Group.MODEL,
        help="Upstream's name of --max-live; give one of them. Never handed to the framework, whose own "
        "queue loses requests at SIGTERM.",
    ),
)
