"""The same row, the same bits: MKL is asked for results that do not depend on where a row lies.

Without it attention of one row differs in its last bits with the thread that gets it, and so with the
number of its neighbours (measured, two threads; no cost was found). MKL takes the wish from the
environment or from this call, before its first product. It is global to the process.
"""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path

import torch

# MKL_CBWR_AUTO of mkl_types.h: repeatable, with the best instructions of this processor.
_AUTO = 2
_SUCCESS = 0

_log = logging.getLogger(__name__)


def make_products_repeatable() -> bool:
    """Ask MKL, which is part of torch's library. False, and a warning, where that cannot be had."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        is_done = ctypes.CDLL(str(library)).mkl_serv_cbwr_set(_AUTO) == _SUCCESS
    except (OSError, AttributeError):
        is_done = False
    if not is_done:
        _log.warning(
            "products cannot be made repeatable: the last bits of a row may depend on its neighbours"
        )
    return bool(is_done)
