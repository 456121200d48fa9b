"""The life of the engine's thread once the model is there: commands in, one step out, again."""

from __future__ import annotations

import time
from typing import assert_never

from actors.engines.bridge import StepBridge
from actors.engines.torch.blocks import BlockAllocator
from actors.engines.torch.config import TorchConfig
from actors.engines.torch.inbox import Abort, Command, CommandInbox, Pause, Resume, Submit
from actors.engines.torch.loading import LoadedModel
from actors.engines.torch.scheduler import Chunk, Limits, Scheduler
from actors.engines.torch.sequence import Sequence
from actors.engines.torch.stopping import ending_of
from protocols.steps import Delta, EngineStep, FinishReason

_NOT_FINITE = "the model gave logits that are not finite"


class StepLoop:
    """Owns all sequences. Only the engine's thread enters it."""

    def __init__(
        self, config: TorchConfig, loaded: LoadedModel, inbox: CommandInbox, bridge: StepBridge
    ) -> None:
        limits = Limits(
            max_num_seqs=config.max_num_seqs,
            step_tokens=config.step_tokens,
            block_tokens=loaded.plan.block_tokens,
            is_chunked_prefill=config.is_chunked_prefill,
        )
        self._inbox = inbox
        self._bridge = bridge
        self._runner = loaded.runner
        self._info = loaded.info
        self._blocks = BlockAllocator(loaded.plan.pool_blocks)
        self._scheduler = Scheduler(limits, self._blocks, self._runner.scrub)

    def run(self) -> None:
        """Step until stopped. Sleeps whenever nothing can move before the next command."""
        can_move = False
        while not self._inbox.is_stopping:
            commands = self._inbox.take(is_waiting=not can_move)
            started_s = time.monotonic()
            deltas = [delta for command in commands for delta in self._apply(command)]
            chunks = self._scheduler.plan()
            deltas += self._compute(chunks)
            can_move = bool(chunks)
            if chunks or deltas:
                step = EngineStep(deltas, started_s, time.monotonic(), len(chunks), self._blocks.used_blocks)
                self._bridge.deliver(step)

    def _apply(self, command: Command) -> list[Delta]:
        """Obey one command; deltas of requests that it ended."""
        match command:
            case Submit(engine_id, spec):
                self._scheduler.add(engine_id, spec)
            case Abort(engine_id):
                sequence = self._scheduler.find(engine_id)
                if sequence is not None:
                    self._scheduler.finish(sequence, is_clean=False)
                    return [Delta(engine_id, [], finish_reason=FinishReason.CANCELLED, is_last=True)]
            case Pause(engine_id) | Resume(engine_id):
                sequence = self._scheduler.find(engine_id)
                if sequence is not None:
                    sequence.is_paused = isinstance(command, Pause)
            case _:
                assert_never(command)
        return []

    def _compute(self, chunks: list[Chunk]) -> list[Delta]:
        """Run one forward pass and let every sampled token take effect."""
        if not chunks:
            return []
        outcome = list(self._runner.run(chunks))
        for chunk in chunks:
            chunk.sequence.computed_tokens = chunk.end
        return [self._accept(sequence, token) for sequence, token in outcome]

    def _accept(self, sequence: Sequence, token: int | None) -> Delta:
        if token is None:
            self._scheduler.finish(sequence, is_clean=False)
            return Delta(sequence.engine_id, [], is_last=True, error=_NOT_FINITE)
        sequence.tokens.append(token)
        ending = ending_of(sequence)
        if ending is None:
            return Delta(sequence.engine_id, [token])
        self._scheduler.finish(sequence, is_clean=True)
        return Delta(
            sequence.engine_id,
            [token],
            finish_reason=ending.finish_reason,
            is_last=True,
            stop_reason=ending.stop_reason,
        )
