"""Faster modules in place of transformers' own, each checked against what it replaces.

Nothing is replaced by name: a linear layer must be exactly `torch.nn.Linear`, a norm must give the
same numbers as the fused operator on random input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

# Rows the packing is tuned for. Measured: as good for 1 and for 64 rows as packing for exactly those.
_PACKED_FOR_ROWS = 16
# On some processors a single row is multiplied by another kernel than several, which cuts sums of more than
# this many values and ends in other last bits (measured, AVX-512). There, one row is multiplied as two.
_UNCUT_FEATURES = 1024
# Largest difference to F.linear over random weights was 1e-4.
_TOLERANCE = 1e-3


class PackedLinear(nn.Module):
    """A linear layer whose weight lies in the order that oneDNN multiplies in.

    ``weight`` is an empty tensor: model code may ask it for dtype and device, not for numbers.
    A row gets the same bits alone and among others.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = nn.Parameter(linear.weight.new_empty(0), requires_grad=False)
        self.bias = linear.bias
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _PACKED_FOR_ROWS)
        self._multiply = torch.ops.mkldnn._linear_pointwise.default
        self._is_cut = linear.in_features > _UNCUT_FEATURES

    def forward(self, rows: Tensor) -> Tensor:
        """``[..., in_features]`` to ``[..., out_features]``."""
        if self._is_cut and rows.numel() == self.in_features:
            pair = rows.view(1, self.in_features).expand(2, -1)
            return self._product(pair)[:1].view(*rows.shape[:-1], self.out_features)
        return self._product(rows)

    def _product(self, rows: Tensor) -> Tensor:
        product: Tensor = self._multiply(rows, self._packed, self.bias, "none", [], "")
        return product


class FusedRmsNorm(nn.Module):
    """Root mean square norm in one operator."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self._shape = list(weight.shape)
        self._eps = eps

    def forward(self, rows: Tensor) -> Tensor:
        """Same shape in and out."""
        return functional.rms_norm(rows, self._shape, self.weight, self._eps)


def operate(model: nn.Module, checkpoint: Callable[[float], None]) -> int:
    """Replace linears and norms of a float32 CPU model in place; originals are dropped as it goes.

    Returns how many linears were packed. ``checkpoint`` gets the fraction done and may raise to stop.
    """
    packed_linears = 0
    can_pack = _packing_works()
    places = list(_places(model))
    for number, (parent, name, module) in enumerate(places):
        checkpoint(number / len(places))
        if type(module) is nn.Linear and can_pack:
            setattr(parent, name, PackedLinear(module))
            packed_linears += 1
        elif (norm := _fused_norm(module)) is not None:
            setattr(parent, name, norm)
    return packed_linears


def _places(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            yield parent, name, child


def _packing_works() -> bool:
    """Whether this build of torch has the private operators, and they multiply correctly."""
    generator = torch.Generator().manual_seed(0)
    linear = nn.Linear(48, 80)
    with torch.no_grad():
        for parameter in linear.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    rows = torch.randn(5, 48, generator=generator)
    try:
        difference = (PackedLinear(linear)(rows) - linear(rows)).abs().max().item()
    except (AttributeError, RuntimeError):
        return False
    return bool(difference < _TOLERANCE)


def _fused_norm(module: nn.Module) -> FusedRmsNorm | None:
    """A replacement that gives the same numbers, or None.

    Two kinds are known: scaled by the weight, and (Gemma) by one plus the weight.
    """
    named: dict[str, Any] = dict(module.named_parameters())
    weight = named.get("weight")
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if len(named) != 1 or weight is None or weight.dim() != 1 or not isinstance(eps, float):
        return None
    rows = 3.0 * torch.randn(4, weight.shape[0], generator=torch.Generator().manual_seed(1)) + 0.5
    expected = module(rows)
    for candidate in (FusedRmsNorm(weight, eps), FusedRmsNorm(weight + 1, eps)):
        found = candidate(rows)
        if isinstance(expected, Tensor) and torch.allclose(found, expected, rtol=1e-5, atol=1e-6):
            return candidate
    return None
