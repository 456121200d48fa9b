"""The requests of a loaded engine: one consumer task each, which hears its results and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from actors.engines.trtllm.answers.collecting import StepCollector
from actors.engines.trtllm.answers.following import FollowedRequest, Reading
from actors.engines.trtllm.loading import Loaded
from actors.engines.trtllm.processors.steering import Steering
from actors.engines.trtllm.requests.asking import Asking
from actors.engines.trtllm.requests.calling import Calling, Doubtful
from actors.engines.trtllm.requests.doubting import Doubts
from actors.engines.trtllm.requests.proving import Proof, has_callers_text
from actors.engines.trtllm.requests.unconfirmed import Unconfirmed
from actors.engines.trtllm.roles.deferral import AbortMoment, Heard, when_to_abort
from protocols.spec import GenerationSpec, Stage
from protocols.steps import Delta, EngineId


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the driver does beside the requests. reading: see there.

    on_dead: the engine will not work again; told perhaps more than once. on_doubt: something failed, and the
    engine's health should be looked at. look: at its health, in bounded time and as long as a death may take
    to be noticed; the cause of its death, if it is dead.
    on_finished: the last delta of a request that has ended without an error, and the library's result.
    """

    reading: Reading
    on_dead: Callable[[BaseException], None]
    on_doubt: Callable[[], None]
    look: Callable[[], Awaitable[BaseException | None]]
    on_finished: Callable[[Delta, Any], None]


@dataclass(slots=True, eq=False)
class _Row:
    """One request. output: the library's ``RequestOutput``."""

    engine_id: EngineId
    spec: GenerationSpec
    output: Any
    followed: FollowedRequest
    is_abort_wished: bool = False
    is_abort_sent: bool = False
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def heard(self) -> Heard:
        """What the engine has said of it."""
        if self.followed.is_over:
            return Heard.END
        return Heard.TOKENS if self.followed.has_tokens else Heard.NOTHING


class Running:
    """Event loop only. progress: counts results. running: sequences in the engine."""

    def __init__(
        self,
        loaded: Loaded,
        asking: Asking,
        steering: Steering,
        steps: StepCollector,
        hooks: Hooks,
    ) -> None:
        self._library = loaded.library
        self._calling = Calling(loaded, asking, hooks.on_dead, hooks.on_doubt)
        self._doubts = Doubts(hooks.look, steps, hooks.on_dead)
        self._steering = steering
        self._steps = steps
        self._hooks = hooks
        self._unconfirmed = Unconfirmed(self._drop)
        self._proof = Proof(loaded.llm, loaded.library, asking, loaded.info.bos_token_id)
        # Or dead: whoever is live then hears it of the graph, and may go on elsewhere.
        self._is_stopped = False
        self._rows: dict[EngineId, _Row] = {}
        self.progress = 0
        self.running = 0

    def submit(self, engine_id: EngineId, spec: GenerationSpec) -> None:
        """Raises EngineDead, or what the library raises for this request.

        Of what it raises for no request somebody hears later, when it is known whether it has died of that.
        """
        try:
            output = self._calling.begin(spec, partial(self._steering.attach, spec, engine_id))
        except Doubtful as exc:
            self._steering.close(engine_id)
            self._doubts.refused(engine_id, exc.kind)
            return
        except BaseException:
            self._steering.close(engine_id)
            raise
        followed = FollowedRequest(engine_id, spec, self._hooks.reading)
        row = self._rows[engine_id] = _Row(engine_id, spec, output, followed)
        if not self.running:
            self._steps.begin()
        self.running += spec.sequences
        row.task = asyncio.get_running_loop().create_task(self._consume(row), name=f"trtllm-{engine_id}")
        row.task.add_done_callback(partial(self._forget, row))

    def abort(self, engine_id: EngineId) -> None:
        """Now, or when the request's phase allows it. Unknown ids are ignored."""
        row = self._rows.get(engine_id)
        if row is not None:
            row.is_abort_wished = True
            self._abort_if_due(row)

    async def stop(self) -> None:
        """Nobody hears the engine any more."""
        self._is_stopped = True
        self._proof.stop()
        await self._doubts.stop()
        tasks = [row.task for row in self._rows.values() if row.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _consume(self, row: _Row) -> None:
        """The task of one request."""
        try:
            results = aiter(row.output)
            while (result := await self._next_result(results, row.output)) is not None:
                self._hear(row, result)
        except Exception as exc:
            await self._failed(row, exc)

    async def _next_result(self, results: AsyncIterator[Any], output: Any) -> Any:
        """None at the end. Raises what ended this request.

        An error that waits in the library for anybody is raised with whatever response is read next: what
        came with that is told all the same.
        """
        try:
            return await anext(results, None)
        except self._library.RequestError as exc:
            if output.error is not None or self._calling.death_in(exc) is not None:
                raise
            self._hooks.on_doubt()
            return output

    def _forget(self, row: _Row, _task: object) -> None:
        """Its task has ended, or was cancelled, by the library perhaps: every request has a last word."""
        if not self._is_stopped and not row.followed.is_over:
            self._steps.say(row.followed.fail("the engine ended the request without a last word"))
            self._let_go(row)
        self._unconfirmed.forget(row.engine_id)
        del self._rows[row.engine_id]
        self.running -= row.spec.sequences
        self._steering.close(row.engine_id)

    def _hear(self, row: _Row, result: Any) -> None:
        self.progress += 1
        self._unconfirmed.heard(row.engine_id)
        if row.spec.processors:
            self._look_at_processors(row, result)
        deltas = row.followed.hear(result)
        self._steps.say(deltas)
        if not row.followed.is_over:
            self._abort_if_due(row)
        elif deltas and deltas[-1].error is None:
            self._hooks.on_finished(deltas[-1], result)

    def _look_at_processors(self, row: _Row, result: Any) -> None:
        """They tell of themselves in a file. One that failed has nothing more to do here."""
        report = self._steering.read(row.engine_id)
        self._steps.tell_uses(report.uses)
        followed = row.followed
        followed.failure = followed.failure or report.failure
        if result.finished and not report.is_heard and _has_chosen(row.spec, result):
            followed.failure = followed.failure or "the engine did not call the request's logits processors"

    def _abort_if_due(self, row: _Row) -> None:
        """Somebody wishes it, or nothing that the engine could still say would be told."""
        if row.is_abort_sent or not (row.is_abort_wished or row.followed.is_enough):
            return
        tells_prompt = row.spec.output.prompt_logprobs is not None
        if when_to_abort(row.spec.stage, row.heard, tells_prompt=tells_prompt) is AbortMoment.NOW:
            self._let_go(row)
            if row.heard is Heard.NOTHING:
                self._unconfirmed.asked(row.engine_id)

    def _let_go(self, row: _Row) -> None:
        """Tell the engine, once; of a request that it has finished it only logs it."""
        if row.is_abort_sent or getattr(row.output, "finished", False):
            return
        row.is_abort_sent = True
        try:
            row.output.abort()
        except Exception:
            # Its executor is gone: why, the health of the engine tells.
            self._hooks.on_doubt()

    def _drop(self, engine_id: EngineId) -> None:
        """The engine was told to end it, and has it no more."""
        row = self._rows[engine_id]
        if row.task is not None and not self._is_stopped:
            self._steps.say(row.followed.drop())
            row.task.cancel()

    async def _death_by(self, row: _Row, exc: Exception) -> BaseException | None:
        """A request's own error is of one type. Of any other the engine may have died unnoticed so far."""
        cause = self._calling.death_in(exc)
        if not isinstance(exc, self._library.RequestError):
            return cause or await self._hooks.look()
        if cause is exc and has_callers_text(row.spec):
            return await self._proof.fault()
        return cause

    async def _failed(self, row: _Row, exc: Exception) -> None:
        self._unconfirmed.forget(row.engine_id)
        cause = await self._death_by(row, exc)
        if cause is not None:
            self._is_stopped = True
            self._hooks.on_dead(cause)
            return
        error = row.followed.failure or f"the engine failed on this request ({type(exc).__name__})"
        self._steps.say(row.followed.fail(error))
        self._let_go(row)
        self._hooks.on_doubt()


def _has_chosen(spec: GenerationSpec, result: Any) -> bool:
    """Whether this engine chose a token of the answer: a prefill's is not, nor the one a decode is handed."""
    handed = {Stage.WHOLE: 0, Stage.DECODE: 1}.get(spec.stage)
    return handed is not None and any(len(output.token_ids) > handed for output in result.outputs)
