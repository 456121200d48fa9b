"""Graphs and compilation: which shapes an engine prepares for."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from tensorrt_llm.llmapi.strict_model import OpenModel, StrictBaseModel

# Neither sizes nor a largest one given.
_LARGEST_BATCH = 128


class BaseCudaGraphConfig(StrictBaseModel):
    """Batch sizes that have a graph. A largest size beside a list must be the largest of the list."""

    batch_sizes: list[int] | None = None
    max_batch_size: NonNegativeInt = 0
    enable_padding: bool = False

    @model_validator(mode="after")
    def _sizes_and_largest_agree(self) -> Self:
        if self.batch_sizes:
            self.batch_sizes = sorted(self.batch_sizes)
            if self.max_batch_size not in (0, self.batch_sizes[-1]):
                raise ValueError("cuda_graph_config.max_batch_size must be the largest of batch_sizes")
            self.max_batch_size = self.batch_sizes[-1]
        else:
            self.max_batch_size = self.max_batch_size or _LARGEST_BATCH
            powers = [2**power for power in range(int(math.log2(self.max_batch_size)) + 1)]
            self.batch_sizes = sorted({*powers, self.max_batch_size})
        return self


class DecodeCudaGraphConfig(BaseCudaGraphConfig):
    """Graphs of decode steps."""

    mode: Literal["decode"] = "decode"


class EncodeCudaGraphConfig(BaseCudaGraphConfig):
    """Graphs of encoders."""

    mode: Literal["encode"] = "encode"
    num_tokens: list[PositiveInt] | None = Field(default=None, min_length=1)
    max_num_token: NonNegativeInt = 0
    seq_lens: list[PositiveInt] | None = Field(default=None, min_length=1)
    max_seq_len: NonNegativeInt = 0


CudaGraphConfig = DecodeCudaGraphConfig
CudaGraphConfigType = Annotated[DecodeCudaGraphConfig | EncodeCudaGraphConfig, Field(discriminator="mode")]
_ENCODE_KEYS = ("num_tokens", "max_num_token", "seq_lens", "max_seq_len")


def with_graph_mode(config: object) -> object:
    """Return a dictionary with the mode that its keys mean, anything else as it is."""
    if not isinstance(config, dict) or "mode" in config:
        return config
    is_encode = any(config.get(key) not in (None, 0) for key in _ENCODE_KEYS)
    return {**config, "mode": "encode" if is_encode else "decode"}


class TorchCompileConfig(StrictBaseModel):
    """What torch.compile does."""

    enable_fullgraph: bool = True
    enable_inductor: bool = False
    enable_piecewise_cuda_graph: bool = False
    capture_num_tokens: list[PositiveInt] | None = None
    enable_userbuffers: bool = True
    max_num_streams: PositiveInt = 1

    @field_validator("capture_num_tokens")
    @classmethod
    def _largest_first(cls, tokens: list[int] | None) -> list[int] | None:
        return None if tokens is None else sorted(set(tokens), reverse=True)


class MultimodalConfig(StrictBaseModel):
    """What the encoders of a multimodal model do."""

    encoder_cuda_graph: dict[str, OpenModel] | None = None
    encoder_side_stream_max_ahead: NonNegativeInt = 0
    encoder_cache_max_bytes: NonNegativeInt = 128 * 1024**2
    video_pruning_rate: float | None = Field(default=None, ge=0, lt=1)

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.encoder_cuda_graph is not None and self.encoder_side_stream_max_ahead > 0:
            raise ValueError("multimodal_config: encoder_cuda_graph excludes encoder_side_stream_max_ahead")
        return self
