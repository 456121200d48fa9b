"""The LLM: arguments checked, the engine loaded, requests made. All of it is synchronous.

Longer than a file should be: it is the public surface of the library, whose signatures are what is doubled.
"""

from __future__ import annotations

import atexit
import os
import socket
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, cast

from tensorrt_llm._double import asking
from tensorrt_llm._double.asking import PreprocessedInputs
from tensorrt_llm._double.iterations import IterationResult, Row
from tensorrt_llm._double.settings import check_machine, settings_of
from tensorrt_llm._double.traps import Traps
from tensorrt_llm._double.wire import GenerationRequest
from tensorrt_llm.conversation_params import ConversationParams as ConversationParamsType
from tensorrt_llm.disaggregated_params import DisaggregatedParams
from tensorrt_llm.executor.executor import GenerationExecutor
from tensorrt_llm.executor.proxy import GenerationExecutorProxy
from tensorrt_llm.executor.request import DEFAULT_REQUEST_PRIORITY, LoRARequest, PromptAdapterRequest
from tensorrt_llm.executor.result import GenerationResult
from tensorrt_llm.executor.worker import GenerationExecutorWorker, is_single_process
from tensorrt_llm.llmapi.torch_llm_args import resolve_llm_args
from tensorrt_llm.sampling_params import SamplingParams
from tensorrt_llm.scheduling_params import SchedulingParams

if TYPE_CHECKING:
    from tensorrt_llm.bindings.executor import KvCacheRetentionConfig
    from tensorrt_llm.llmapi.llm_args import TorchLlmArgs
    from tensorrt_llm.tokenizing import Tokenizer

__all__ = ["LLM", "PreprocessedInputs", "RequestOutput", "SamplingParams"]

T = TypeVar("T")


class RequestOutput(GenerationResult):
    """A copy of the executor's result: queues and outputs are shared with it, flags are not."""

    prompt: str | None

    def __init__(self) -> None:
        raise RuntimeError("a RequestOutput is made by generate and generate_async only")

    @classmethod
    def _from_generation_result(
        cls, result: GenerationResult, prompt: str | None, tokenizer: Tokenizer | None
    ) -> RequestOutput:
        output = cls.__new__(cls)
        output.__dict__.update(result.__dict__)
        output.prompt = prompt
        output.tokenizer = tokenizer
        return output


class BaseLLM:
    """Everything but the name."""

    def __init__(  # noqa: PLR0917 - the signature is the library's
        self,
        model: str | Path,
        tokenizer: str | Path | Tokenizer | None = None,
        tokenizer_mode: Literal["auto", "slow"] = "auto",
        skip_tokenizer_init: bool = False,
        trust_remote_code: bool = False,
        tensor_parallel_size: int = 1,
        dtype: str = "auto",
        revision: str | None = None,
        tokenizer_revision: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Blocks until the engine has loaded. Raises ValueError for arguments, RuntimeError for all else."""
        self._executor: GenerationExecutor | None = None
        os.environ.update(kwargs.get("env_overrides") or {})
        arguments: dict[str, Any] = {
            "model": model,
            "tokenizer": tokenizer,
            "tokenizer_mode": tokenizer_mode,
            "skip_tokenizer_init": skip_tokenizer_init,
            "trust_remote_code": trust_remote_code,
            "tensor_parallel_size": tensor_parallel_size,
            "dtype": dtype,
            "revision": revision,
            "tokenizer_revision": tokenizer_revision,
        }
        self.args = resolve_llm_args(**arguments, **kwargs)
        self.mpi_session: object | None = kwargs.get("_mpi_session")
        check_machine(self.args)
        self._llm_id = f"{socket.gethostname()}-{os.getpid()}-{time.time_ns() // 1_000_000}"
        self._encode_only = bool(self.args.encode_only)
        self._encoder_executor: object | None = None
        self._hf_model_config: object | None = None
        self._generation_config: object | None = None
        self.input_processor: object | None = None
        self._disaggregated_params: Row | None = None
        self._checks = 0
        self._tokenizer = None if skip_tokenizer_init else self._found_tokenizer(tokenizer)
        if self.args.guided_decoding_backend is not None and self._tokenizer is None:
            # Whoever follows constraints reads the tokenizer; the worker ends by an assertion.
            raise RuntimeError("Executor worker returned error") from AssertionError("tokenizer is not None")
        _import_connector(self.args)
        settings = settings_of(self.args)
        self._script = settings.script
        self._traps = Traps(settings.script)
        kind = GenerationExecutorWorker if is_single_process(self.args) else GenerationExecutorProxy
        self._executor = kind(settings)
        atexit.register(_shutdown_at_exit, weakref.ref(self))

    @property
    def llm_id(self) -> str:
        """Host, process and milliseconds."""
        return self._llm_id

    @property
    def tokenizer(self) -> Tokenizer | None:
        """None when it was not wanted."""
        return self._tokenizer

    @property
    def disaggregated_params(self) -> Row:
        """What the cache transceiver tells others; asked for once. {} without one."""
        if self._disaggregated_params is None:
            self._disaggregated_params = self._executor.get_disaggregated_params() if self._executor else {}
        return self._disaggregated_params

    def generate_async(  # noqa: PLR0917 - the signature is the library's
        self,
        inputs: str | list[int] | Mapping[str, object] | PreprocessedInputs,
        sampling_params: SamplingParams | None = None,
        lora_request: LoRARequest | None = None,
        prompt_adapter_request: PromptAdapterRequest | None = None,
        streaming: bool = False,
        kv_cache_retention_config: KvCacheRetentionConfig | None = None,
        disaggregated_params: DisaggregatedParams | None = None,
        trace_headers: Mapping[str, str] | None = None,
        _postproc_params: object | None = None,
        scheduling_params: SchedulingParams | None = None,
        conversation_params: ConversationParamsType | None = None,
        cache_salt: str | None = None,
        priority: float = DEFAULT_REQUEST_PRIORITY,
    ) -> RequestOutput:
        """Send one request. Changes ``sampling_params``; raises as the table of the facts says."""
        executor = self._open_executor()
        self._refuse_what_is_lacking(conversation_params)
        sampling = asking.prepared_sampling(sampling_params, self.args, self._tokenizer, disaggregated_params)
        prompt, ids = asking.prompt_of(inputs, self._tokenizer)
        asking.check_length(ids, self.args, disaggregated_params)
        if not 0.0 <= priority <= 1.0:
            raise ValueError(f"priority must be in [0.0, 1.0], but got {priority}")
        if disaggregated_params is not None and disaggregated_params.request_type == "generation_only":
            _refuse_handles(disaggregated_params)
        request = GenerationRequest(
            prompt_token_ids=ids,
            sampling_params=sampling,
            streaming=streaming,
            lora_request=lora_request,
            disaggregated_params=disaggregated_params,
            trace_headers=None if trace_headers is None else dict(trace_headers),
            scheduling_params=scheduling_params,
            conversation_params=conversation_params,
            cache_salt=cache_salt,
            priority=priority,
            trap=self._traps.find(ids),
        )
        return RequestOutput._from_generation_result(executor.submit(request), prompt, self._tokenizer)

    def generate(  # noqa: PLR0917 - the signature is the library's
        self,
        inputs: object,
        sampling_params: SamplingParams | list[SamplingParams] | None = None,
        use_tqdm: bool = True,
        lora_request: LoRARequest | list[LoRARequest] | None = None,
        prompt_adapter_request: PromptAdapterRequest | list[PromptAdapterRequest] | None = None,
        kv_cache_retention_config: object | None = None,
        disaggregated_params: DisaggregatedParams | list[DisaggregatedParams] | None = None,
        scheduling_params: SchedulingParams | list[SchedulingParams] | None = None,
        conversation_params: ConversationParamsType | list[ConversationParamsType] | None = None,
        cache_salt: str | list[str] | None = None,
        priority: float | list[float] = DEFAULT_REQUEST_PRIORITY,
    ) -> RequestOutput | list[RequestOutput]:
        """Block until all are done. A list of prompts gives a list of results."""
        is_one = isinstance(inputs, str | Mapping) or (
            isinstance(inputs, list) and isinstance(inputs[0], int)
        )
        prompts = [inputs] if is_one else list(cast("Sequence[object]", inputs))
        results = [
            self.generate_async(
                cast("list[int]", each),
                _item(sampling_params, place),
                _item(lora_request, place),
                disaggregated_params=_item(disaggregated_params, place),
                scheduling_params=_item(scheduling_params, place),
                conversation_params=_item(conversation_params, place),
                cache_salt=_item(cache_salt, place),
                priority=_item(priority, place) or 0.0,
            )
            for place, each in enumerate(prompts)
        ]
        for result in results:
            result.result()
        return results[0] if is_one else results

    def preprocess(
        self,
        inputs: str | list[int] | Mapping[str, object],
        sampling_params: SamplingParams | None = None,
        disaggregated_params: DisaggregatedParams | None = None,
    ) -> PreprocessedInputs:
        """Blocks: tokenizes."""
        return PreprocessedInputs(asking.prompt_of(inputs, self._tokenizer)[1])

    def encode(self, *_inputs: object, **_options: object) -> NoReturn:
        """The double has no model that encodes."""
        raise RuntimeError("encode needs encode_only=True")

    def get_stats(self, timeout: float | None = 2) -> list[Row]:
        """Blocks up to the timeout; takes the rows that are there."""
        return self._polled().get_stats(2.0 if timeout is None else timeout)

    def get_stats_async(self, timeout: float | None = 2) -> IterationResult:
        """Blocks up to the timeout, too, before it gives the stream."""
        return self._polled().aget_stats(2.0 if timeout is None else timeout)

    def get_kv_cache_events(self, timeout: float | None = 2) -> list[Row]:
        """Blocks up to the timeout; takes the events that are there."""
        return self._polled().get_kv_events(2.0 if timeout is None else timeout)

    def get_kv_cache_events_async(self, timeout: float | None = 2) -> IterationResult:
        """Blocks up to the timeout, too, before it gives the stream."""
        return self._polled().aget_kv_events(timeout)

    def get_kv_cache_capacity(self) -> Row:
        """Blocks; of the first rank."""
        return self._polled().get_kv_cache_capacity()

    def shutdown(self) -> None:
        """Blocks until the engine's process has ended. Whoever calls it meanwhile, or after it has raised,
        does it once more: what is shut down is forgotten at the end.
        """
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None

    def _check_health(self) -> bool:
        """Any thread; asks nobody in the engine's process."""
        self._checks += 1
        first_bad = self._script.unhealthy_from_check
        if first_bad is not None and self._checks >= first_bad:
            return False
        return self._executor is not None and self._executor.check_health()

    def _collective_rpc(
        self,
        method: str,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
        non_block: bool = False,
        unique_reply_rank: int | None = None,
        target_ranks: int | list[int] | None = None,
    ) -> list[object]:
        """Blocks unless told otherwise. Raises ValueError where the executor has no such thing."""
        if self._encode_only:
            raise RuntimeError("collective RPC is not supported with encode_only")
        if not isinstance(self._executor, GenerationExecutorProxy):
            raise ValueError(f"{type(self._executor).__name__} does not support collective RPC")
        return self._executor.collective_rpc(method, args, kwargs, non_block, unique_reply_rank, target_ranks)

    def __enter__(self) -> BaseLLM:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[False]:
        self.shutdown()
        return False

    def __del__(self) -> None:
        if "_executor" in self.__dict__:
            self.shutdown()

    def __getstate__(self) -> NoReturn:
        raise RuntimeError("an LLM cannot be pickled")

    def _found_tokenizer(self, given: object) -> Tokenizer:
        """The one that was given; else that of the adapter, where there is exactly one; else the model's."""
        lora, trusts = self.args.lora_config, bool(self.args.trust_remote_code)
        if given is None and lora is not None and len(lora.lora_dir) == 1:
            # A folder without one is passed over.
            with suppress(Exception):
                return _tokenizer_of(lora.lora_dir[0], trusts)
        return _tokenizer_of(given or self.args.model, trusts)

    def _open_executor(self) -> GenerationExecutor:
        if self._encode_only:
            raise RuntimeError("generate_async is not supported with encode_only")
        if self._executor is None or self._executor.is_shutdown():
            raise RuntimeError("LLM is shutting down")
        return self._executor

    def _polled(self) -> GenerationExecutor:
        """None is given on as it is: then the caller gets the AttributeError of the library."""
        if self._encode_only:
            raise RuntimeError("there are no statistics and events with encode_only")
        return cast("GenerationExecutor", self._executor)

    def _refuse_what_is_lacking(self, conversation_params: object) -> None:
        if conversation_params is not None and "ConversationParams" in self._script.lacks:
            raise TypeError("generate_async() got an unexpected keyword argument 'conversation_params'")


class _TorchLLM(BaseLLM):
    """With the PyTorch backend, the only one there is."""


class LLM(_TorchLLM):
    """What the library exports."""


def _tokenizer_of(source: object, trust_remote_code: bool) -> Tokenizer:
    """Slow: imports transformers."""
    if not isinstance(source, str | Path):
        return cast("Tokenizer", source)
    from transformers import AutoTokenizer

    return cast("Tokenizer", AutoTokenizer.from_pretrained(source, trust_remote_code=trust_remote_code))


def _import_connector(args: TorchLlmArgs) -> None:
    """The engine's worker would: what it cannot find ends it."""
    connector = args.kv_connector_config
    if connector is None or connector.connector_module is None:
        return
    try:
        module = import_module(connector.connector_module)
        for name in (connector.connector_scheduler_class, connector.connector_worker_class):
            getattr(module, name or "")
    except (ImportError, AttributeError) as exc:
        raise RuntimeError("Executor worker returned error") from exc


def _refuse_handles(params: DisaggregatedParams) -> None:
    if params.multimodal_embedding_handles is not None:
        raise ValueError("multimodal handles are for a prefill, not for generation_only")


def _item(value: T | list[T] | None, place: int) -> T | None:
    """One value for all, or the one of this place."""
    if isinstance(value, list):
        return cast("T", value[place])
    return value


def _shutdown_at_exit(reference: weakref.ref[BaseLLM]) -> None:
    llm = reference()
    if llm is not None:
        llm.shutdown()
