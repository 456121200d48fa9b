"""A process that is to the driver what TensorRT-LLM's is: it gets a processor pickled, and calls it."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    from actors.engines.trtllm.processors.factories import EngineProcessor

VOCAB_SIZE = 64


class EngineProcess:
    """The parent's side. A tensor-parallel engine has one for each rank."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._mine, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def begin(self, processor: EngineProcessor) -> None:
        """One request, in place of the one before it."""
        self._ask("begin", processor)

    def token(self, req_id: int, token_ids: Sequence[int]) -> int:
        """What a greedy sampler takes after the processor was called."""
        return int(self._ask("call", req_id, list(token_ids)))

    def stop(self) -> bool:
        """Whether the process was still alive and well."""
        self._mine.send(None)
        self._process.join()
        return self._process.exitcode == 0

    def _ask(self, *question: object) -> Any:
        self._mine.send(question)
        return self._mine.recv()


def _serve(connection: Connection) -> None:
    """The child's side; an error of a processor ends it, as it may end the real one."""
    torch.set_num_threads(1)
    processor: EngineProcessor | None = None
    while (question := connection.recv()) is not None:
        match question:
            case ("begin", processor):
                connection.send(None)
            case ("call", req_id, token_ids):
                assert processor is not None
                rows = torch.arange(VOCAB_SIZE, 0, -1.0).view(1, 1, -1)
                processor(req_id, rows, [token_ids], None, None)
                connection.send(int(rows.argmax()))
            case _:
                raise AssertionError(question)
