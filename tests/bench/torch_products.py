"""The matrix products of a step alone: packed linears of the model's own shapes and weights, nothing else.

What a step takes beyond that is attention, norms, cache, scheduling, sampling and Python.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

from actors.engines.torch.surgery import PackedLinear

_REPEATS = 3


class Products:
    """Every linear layer of a model, packed as the engine packs it."""

    def __init__(self, model: Any) -> None:
        head = model.get_output_embeddings()
        linears = [
            module for module in model.modules() if isinstance(module, nn.Linear) and module is not head
        ]
        with torch.inference_mode():
            self._layers = [PackedLinear(linear) for linear in linears]
            self._head = PackedLinear(head)

    @torch.inference_mode()
    def seconds(self, rows: int, head_rows: int) -> float:
        """One step with so many rows, and so many of them in front of the vocabulary; best of three."""
        inputs: dict[int, Tensor] = {
            layer.in_features: torch.randn(1, rows, layer.in_features)
            for layer in (*self._layers, self._head)
        }
        found: list[float] = []
        for _ in range(_REPEATS):
            started_s = time.perf_counter()
            for layer in self._layers:
                layer(inputs[layer.in_features])
            self._head(inputs[self._head.in_features][:, :head_rows])
            found.append(time.perf_counter() - started_s)
        return min(found)
