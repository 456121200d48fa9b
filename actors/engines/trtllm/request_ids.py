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

# A prime each, so that worker ids that have something in common still spread: below 2**10, which is all up to
# rc21, and below 2**14, which rc22 takes as 8 bits of a node and 6 of a process.
_MACHINES = 1021
_MACHINES_AND_PROCESSES = 16_381
_PROCESSES = 64


def request_ids(make: MakeId | None, worker_id: int | None = None) -> Callable[[], int]:
    """What makes the ids of one prefill worker; each call returns one that this process has not made before.

    make: ``get_global_disagg_request_id`` of the installed release; None where it has none. worker_id: of
    the framework, any whole number. Without it the machine's number is drawn from the system's own source:
    a generator that was seeded, or copied with an image or by a fork, would give two workers the same.

    Raises EngineStartError where the installed release makes ids in no way that is known here. The releases
    are told apart by the parameters' names: two that differ may have the same version.
    """
    names = () if make is None else tuple(inspect.signature(make).parameters)
    match names:
        case ("node_id", "process_id", *_) if make is not None:
            return partial(make, *divmod(_machine(_MACHINES_AND_PROCESSES, worker_id), _PROCESSES))
        case ("machine_id", *_) if make is not None:
            return partial(make, _machine(_MACHINES, worker_id))
        case _:
            raise EngineStartError(
                "This TensorRT-LLM makes no ids for requests of two workers in a way that is known here.",
                "A prefill worker needs 1.3.0rc19 to rc22.",
            )


def _machine(count: int, worker_id: int | None) -> int:
    return secrets.randbelow(count) if worker_id is None else worker_id % count
