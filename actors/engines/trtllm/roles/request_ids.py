"""Ids that a request has in its prefill engine and in its decode engine, made by the prefill worker.

A decode engine asks for a KV cache by this id alone, so no two workers of a cluster may make the same one
at the same time. TensorRT-LLM makes it of the time, a number of the machine, and a counter.
"""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable
from functools import partial

from protocols.errors import EngineStartError

MakeId = Callable[..., int]

# How many numbers there are: 10 bits up to rc21; in rc22 8 bits of a node and 6 of a process.
_MACHINES = 1 << 10
_NODES, _PROCESSES = 1 << 8, 1 << 6


def request_ids(make: MakeId | None) -> Callable[[], int]:
    """What makes the ids of one prefill worker; each call returns one that this process has not made before.

    make: ``get_global_disagg_request_id`` of the installed release; None where it has none. The machine's
    number is drawn, from the system's own source: a generator that was seeded, or copied with an image or by
    a fork, would give two workers the same.

    Raises EngineStartError where the installed release makes ids in no way that is known here. The releases
    are told apart by the parameters' names: two that differ may have the same version.
    """
    names = () if make is None else tuple(inspect.signature(make).parameters)
    match names:
        case ("node_id", "process_id", *_) if make is not None:
            return partial(make, secrets.randbelow(_NODES), secrets.randbelow(_PROCESSES))
        case ("machine_id", *_) if make is not None:
            return partial(make, secrets.randbelow(_MACHINES))
        case _:
            raise EngineStartError(
                "This TensorRT-LLM makes no ids for requests of two workers in a way that is known here.",
                "A prefill worker needs 1.3.0rc19 to rc22.",
            )
