"""Ids of requests that two engines share: positive, of 63 bits, and never among an engine's own small ids."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from tensorrt_llm._double.script import read_script

# An engine's own ids are below.
MIN_GLOBAL_ID = 1 << 40
_LARGEST = (1 << 63) - 1
_TIME_BITS = 39
_NODE_BITS = 8
_PROCESS_BITS = 6
_MACHINE_BITS = 10
_COUNTER_BITS = 10
_counter = itertools.count()


def _by_process(node_id: int, process_id: int) -> int:
    """Return a new id. Raises ValueError for numbers that do not fit into 8 and 6 bits."""
    _refuse_wide("node_id", node_id, _NODE_BITS)
    _refuse_wide("process_id", process_id, _PROCESS_BITS)
    return _new_id(node_id << _PROCESS_BITS | process_id, _NODE_BITS + _PROCESS_BITS)


def _by_machine(machine_id: int) -> int:
    """Return a new id, as releases up to 1.3.0rc21 make it. Raises ValueError for more than 10 bits."""
    _refuse_wide("machine_id", machine_id, _MACHINE_BITS)
    return _new_id(machine_id, _MACHINE_BITS)


def __getattr__(name: str) -> Callable[..., int]:
    """Find the one function of this module in the shape that the script asks for, at every look."""
    if name != "get_global_disagg_request_id":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _by_machine if read_script().has_machine_ids else _by_process


def _new_id(place: int, bits: int) -> int:
    moment = int(time.monotonic() * 1000) & ((1 << _TIME_BITS) - 1)
    count = next(_counter) & ((1 << _COUNTER_BITS) - 1)
    number = moment << bits + _COUNTER_BITS | place << _COUNTER_BITS | count
    return number % (_LARGEST - MIN_GLOBAL_ID) + MIN_GLOBAL_ID


def _refuse_wide(name: str, value: int, bits: int) -> None:
    if type(value) is not int or not 0 <= value < 1 << bits:
        raise ValueError(f"{name} must be in [0, {1 << bits})")
