"""A row has the same bits in any batch: MKL once it has been asked to, packed products by themselves."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from actors.engines.torch.surgery import PackedLinear

# In a process of its own: MKL takes the wish before its first product only.
SCRIPT = """
import torch
from actors.engines.torch.repeatable import make_products_repeatable

assert make_products_repeatable()
torch.set_num_threads(2)
attend = torch.nn.functional.scaled_dot_product_attention
query, key, value = torch.randn(16, 3, 3, 64), torch.randn(16, 3, 48, 64), torch.randn(16, 3, 48, 64)
together = attend(query, key, value)
for row in range(16):
    alone = attend(*(part[row : row + 1].clone() for part in (query, key, value)))
    assert torch.equal(alone, together[row : row + 1]), row
"""


def test_attention_of_a_row_does_not_depend_on_the_batch() -> None:
    """With two threads each of 16 rows gets alone what it gets among the others."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("in_features", [96, 576, 1024, 1025, 1536, 4096])
def test_a_row_of_a_packed_product_does_not_depend_on_the_batch(in_features: int) -> None:
    """Alone and among 2 to 64 rows, whatever kernel multiplies them."""
    generator = torch.Generator().manual_seed(in_features)
    packed = PackedLinear(torch.nn.Linear(in_features, 72, bias=False))
    rows = torch.randn(64, in_features, generator=generator)
    with torch.inference_mode():
        together = packed(rows)
        for count in (1, 2, 3, 7, 16, 33):
            assert torch.equal(packed(rows[:count].clone()), together[:count]), count
        # As the model calls it: one sequence, one token.
        assert torch.equal(packed(rows[None, :1]), together[None, :1])
