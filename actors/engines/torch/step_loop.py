"""The life of the engine's thread once the model is there: commands in, one step out, again."""

from __future__ import annotations

import time
from typing import assert_never

from actors.engines.bridge import StepBridge
from actors.engines.foreign.steering_failed import SteeringFailed
from actors.engines.torch.block_pool import BlockPool
from actors.engines.torch.blocks import BlockAllocator
from actors.engines.torch.choosing import Choice
from actors.engines.torch.config import TorchConfig
from actors.engines.torch.faults import OutOfMemory, is_of_one_request
from actors.engines.torch.following import Following
from actors.engines.torch.inbox import Abort, Command, CommandInbox, Pause, Resume, Submit
from actors.engines.torch.loading import LoadedModel
from actors.engines.torch.outfit import Outfitter
from actors.engines.torch.prefix_cache import PrefixCache
from actors.engines.torch.scheduler import Chunk, Limits, Scheduler
from actors.engines.torch.sequence import Request, Sequence
from actors.engines.torch.stopping import Ending, ending_of
from protocols.spec import GenerationSpec
from protocols.steps import Delta, EngineId, EngineStep, FinishReason

# How often to look whether somebody's foreign code has had all the time it gets, when nothing else moves.
_LOOK_AT_LATE_S = 0.25
# Forward passes in a row without memory: by then it is not a request that is too large.
_MOST_FAILED_PASSES = 3


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
        self._chooser = loaded.runner.chooser
        self._failed_passes = 0
        self._following = Following(self._chooser.turn)
        cache = PrefixCache(loaded.plan.block_tokens)
        self._pool = BlockPool(
            BlockAllocator(loaded.plan.pool_blocks), cache, self._runner.scrub, config.on_bound
        )
        self._scheduler = Scheduler(limits, self._pool, config.on_bound)
        self._outfitter = Outfitter(loaded.device, config.processors, inbox.wake, config.on_bound)

    def run(self) -> None:
        """Step until stopped. Sleeps whenever nothing can move before the next command.

        The pulse is the runner's: obeying commands is no sign of life to those who wait for tokens.
        """
        can_move = False
        try:
            while not self._inbox.is_stopping:
                patience_s = _LOOK_AT_LATE_S if self._has_late else None
                commands = self._inbox.take(is_waiting=not can_move, timeout_s=patience_s)
                can_move = self._step(commands)
        finally:
            self._outfitter.close()

    @property
    def _has_late(self) -> bool:
        return self._chooser.has_late or self._following.has_late

    def _step(self, commands: list[Command]) -> bool:
        """One turn. Whether the next one can be made without waiting for anybody."""
        started_s = time.monotonic()
        self._chooser.turn.begin()
        deltas = [delta for command in commands for delta in self._apply(command)]
        deltas += self._settle_late()
        deltas += self._settle(self._chooser.choose_late())
        chunks = self._scheduler.plan()
        deltas += self._compute(chunks)
        events = self._pool.take_events()
        # Late tokens are no hang: whoever watches the engine must hear from it.
        preempted = self._scheduler.take_preempted()
        if chunks or deltas or events or preempted or self._has_late:
            self._bridge.deliver(
                EngineStep(
                    deltas,
                    started_s,
                    time.monotonic(),
                    running=len(chunks),
                    used_blocks=self._pool.used_blocks,
                    cached_blocks=self._pool.cached_blocks,
                    kv_events=events,
                    processors=self._outfitter.take_use(),
                    preempted=preempted,
                )
            )
        return bool(chunks)

    def _apply(self, command: Command) -> list[Delta]:
        """Obey one command; deltas of requests that it ended."""
        match command:
            case Submit(engine_id, spec):
                return self._submit(engine_id, spec)
            case Abort(engine_id):
                request = self._scheduler.find(engine_id)
                if request is not None:
                    return [self._end(request, finish_reason=FinishReason.CANCELLED)]
            case Pause(engine_id) | Resume(engine_id):
                request = self._scheduler.find(engine_id)
                for sequence in request.sequences if request is not None else ():
                    sequence.is_paused = isinstance(command, Pause)
            case _:
                assert_never(command)
        return []

    def _submit(self, engine_id: EngineId, spec: GenerationSpec) -> list[Delta]:
        request = self._scheduler.add(engine_id, spec)
        try:
            for sequence in request.sequences:
                self._outfitter.fit_out(sequence)
        except SteeringFailed as exc:
            return [self._end(request, error=str(exc))]
        except Exception as exc:
            if not is_of_one_request(exc):
                raise
            return [
                self._end(request, error=f"the engine could not begin the request ({type(exc).__name__})")
            ]
        return []

    def _end(
        self, request: Request, *, finish_reason: FinishReason | None = None, error: str | None = None
    ) -> Delta:
        """End all choices of a request that are still open, not by their own stop rules."""
        index = request.sequences[0].index
        for sequence in list(request.sequences):
            self._finish(sequence, is_clean=False)
        return Delta(request.engine_id, [], index, finish_reason=finish_reason, is_last=True, error=error)

    def _finish(self, sequence: Sequence, *, is_clean: bool) -> None:
        """The one way out for every sequence: whatever runs for it has no reason to go on."""
        self._scheduler.finish(sequence, is_clean=is_clean)
        if sequence.steering is not None:
            sequence.steering.leave()

    def _compute(self, chunks: list[Chunk]) -> list[Delta]:
        """Run one forward pass and let every chosen token take effect.

        One that finds no memory costs the request with the largest part in it, and is made again without.
        """
        if not chunks:
            return []
        try:
            choices = self._runner.run(chunks)
        except OutOfMemory:
            self._failed_passes += 1
            if self._failed_passes >= _MOST_FAILED_PASSES:
                raise
            largest = max(chunks, key=lambda chunk: (chunk.rows, chunk.sequence.arrival))
            return [self._end(largest.sequence.request, error="the engine ran out of memory for the request")]
        self._failed_passes = 0
        for chunk in chunks:
            chunk.sequence.computed_tokens = chunk.end
        return self._settle(choices)

    def _settle(self, choices: list[Choice]) -> list[Delta]:
        """Every chosen token takes effect, then grammars are waited for, then all is told.

        Choices of a sequence that a sibling's failure has ended meanwhile are nobody's.
        """
        noted = [(choice, self._note(choice)) for choice in choices if not choice.sequence.is_ended]
        self._following.wait()
        deltas = [self._tell(choice, ending) for choice, ending in noted if not choice.sequence.is_ended]
        self._following.begin_masks()
        return deltas

    def _note(self, choice: Choice) -> Ending | None:
        """The token is part of its sequence now. Why it ends with it, as far as its stop rules say."""
        sequence, token = choice.sequence, choice.token
        if token is None:
            return None
        self._scheduler.chosen(sequence)
        sequence.tokens.append(token)
        if sequence.penalties is not None:
            sequence.penalties.note(token)
        ending = ending_of(sequence)
        if ending is None:
            self._following.begin(sequence)
        return ending

    def _tell(self, choice: Choice, ending: Ending | None) -> Delta:
        sequence, token = choice.sequence, choice.token
        request = sequence.request
        if token is None:
            return self._end(request, error=choice.error)
        try:
            ending = ending or self._ending_by_grammar(sequence)
        except SteeringFailed as exc:
            return self._end(request, error=str(exc))
        is_first = sequence.output_tokens == 1 and sequence.index == 0
        if ending is not None:
            self._finish(sequence, is_clean=True)
        return Delta(
            request.engine_id,
            [token],
            sequence.index,
            finish_reason=ending.finish_reason if ending else None,
            is_last=not request.sequences,
            stop_reason=ending.stop_reason if ending else None,
            cached_tokens=sequence.cached_tokens if is_first else 0,
            positions=[choice.position] if choice.position is not None else None,
            prompt_positions=request.prompt_positions if is_first else None,
        )

    def _settle_late(self) -> list[Delta]:
        """Tokens that were told before their grammars had noted them: some turn out to have been the last."""
        deltas: list[Delta] = []
        for sequence in self._following.take_late():
            if sequence.is_ended:
                continue
            request = sequence.request
            try:
                ending = self._ending_by_grammar(sequence)
            except SteeringFailed as exc:
                deltas.append(self._end(request, error=str(exc)))
                continue
            if ending is not None:
                self._finish(sequence, is_clean=True)
                reason, is_last = ending.finish_reason, not request.sequences
                deltas.append(
                    Delta(request.engine_id, [], sequence.index, finish_reason=reason, is_last=is_last)
                )
        return deltas

    def _ending_by_grammar(self, sequence: Sequence) -> Ending | None:
        """What its stop rules say comes first. Raises SteeringFailed."""
        return Ending(FinishReason.STOP) if self._following.is_complete(sequence) else None
