"""The driver of the chosen engine, out of the settings. Its library is imported only when it was chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from protocols.engine import Engine
from service.engine_needs import EngineNeeds
from service.models import ResolvedModel
from service.models.facts import ModelFacts
from service.options.engine_choice import EngineName
from service.options.settings import Settings

if TYPE_CHECKING:
    from actors.engines.torch.config import DeviceChoice, DtypeChoice

# What the synthetic engine pretends to have been made for, in tokens.
SYNTHETIC_CONTEXT = 2048


def build_engine(settings: Settings, name: EngineName, needs: EngineNeeds) -> Engine:
    """The driver of ``--engine``, not started. Raises ModelInvalid, EngineStartError."""
    match name:
        case "synthetic":
            return _synthetic(settings, needs.model)
        case "trtllm":
            from service.trtllm_engine import build_trtllm  # noqa: PLC0415 - as the module says

            return build_trtllm(settings, needs)
        case "torch":
            return _torch(settings, needs)


def _synthetic(settings: Settings, model: ResolvedModel) -> Engine:
    from actors.engines.synthetic import SyntheticConfig, SyntheticEngine  # noqa: PLC0415 - as the module says

    return SyntheticEngine(
        SyntheticConfig(
            model=str(model.path),
            context_length=settings.model.max_seq_len or SYNTHETIC_CONTEXT,
            vocab_size=ModelFacts.read(model.path).vocab_size,
            max_num_seqs=settings.engine.max_num_seqs,
            step_ms=settings.synthetic.step_s * 1000,
        )
    )


def _torch(settings: Settings, needs: EngineNeeds) -> Engine:
    from actors.engines.torch import TorchConfig, TorchEngine  # noqa: PLC0415 - as the module says

    torch = settings.torch
    config = TorchConfig(
        model_path=needs.model.path,
        # The options allow exactly the words of these types.
        device=cast("DeviceChoice", torch.device),
        dtype=cast("DtypeChoice", torch.dtype),
        threads=torch.threads,
        memory_gb=torch.memory_gb,
        max_num_seqs=settings.engine.max_num_seqs,
        step_tokens=settings.engine.step_tokens,
        max_seq_len=settings.model.max_seq_len,
        kv_block_tokens=settings.model.kv_block_tokens,
        trust_remote_code=settings.model.trust_remote_code,
        processors=needs.processors,
        on_bound=needs.on_bound,
    )
    return TorchEngine(config, progress=needs.progress)
