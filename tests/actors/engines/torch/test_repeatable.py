"""MKL gives a row the same bits in any batch once it has been asked to."""

from __future__ import annotations

import subprocess
import sys

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
