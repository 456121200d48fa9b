"""One rank: the requests it has, the engine behind the double that serves them, and its pace."""

from __future__ import annotations

import asyncio
import itertools
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from protocols.engine import Engine, EngineInfo
from protocols.spec import GenerationSpec
from protocols.steps import EngineId, EngineStep
from tensorrt_llm._double.events import EventLog
from tensorrt_llm._double.iterations import Row
from tensorrt_llm._double.late import ASSERTED
from tensorrt_llm._double.live import LiveRequest, Message
from tensorrt_llm._double.processing import Processing
from tensorrt_llm._double.rows import Counts, RowLog
from tensorrt_llm._double.script import Said
from tensorrt_llm._double.wire import Settings


@dataclass(frozen=True, slots=True)
class World:
    """What all ranks share. say: sends one message. before_step: may end the process, or
    give what is never done. on_left: called when a request is gone. lose_device: ends them all.
    count_queued: requests of all ranks that wait."""

    settings: Settings
    processing: Processing
    say: Callable[[Message], None]
    before_step: Callable[[], asyncio.Future[None] | None]
    on_left: Callable[[], None]
    lose_device: Callable[[str], None]
    count_queued: Callable[[], int]


@dataclass(slots=True)
class _Place:
    """A request that waits for the engine, or is in it."""

    live: LiveRequest
    spec: GenerationSpec
    number: EngineId
    scripted: asyncio.Task[None] | None = None


class Rank:
    """Event loop only. Requests beyond the batch wait here, by priority where the queue knows one."""

    def __init__(self, rank: int, engine: Engine, info: EngineInfo, world: World) -> None:
        settings = world.settings
        blocks = info.total_blocks or info.max_num_seqs * info.context_length // settings.block_tokens
        self.number = rank
        self.engine = engine
        self.info = info
        self.total_blocks = blocks
        self.events = EventLog(rank, settings, blocks, info.context_length)
        self.rows = RowLog(rank, settings, blocks)
        self.changed = asyncio.Event()
        self._world = world
        self._numbers = itertools.count(1)
        self._waiting: list[_Place] = []
        self._running: dict[EngineId, _Place] = {}
        self._used = 0
        self._completed = self._cached_tokens = self._prompt_tokens = 0
        self._steps: asyncio.Task[None] | None = None

    @property
    def load(self) -> int:
        """Requests that it has."""
        return len(self._waiting) + len(self._running)

    @property
    def queued(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    def begin(self) -> None:
        """Start to step."""
        self._steps = asyncio.create_task(self._run(), name=f"rank {self.number}")

    def submit(self, live: LiveRequest, spec: GenerationSpec) -> None:
        """Run it as soon as there is room."""
        place = _Place(live, spec, EngineId(next(self._numbers)))
        self._waiting.append(place)
        self._waiting.sort(key=self._order)
        self._schedule()

    def abort(self, client_id: int) -> bool:
        """End it early. False when it is not here."""
        for place in [*self._waiting, *self._running.values()]:
            if place.live.request.id == client_id:
                self._abort(place)
                return True
        return False

    async def stop(self) -> None:
        """No more steps, for nobody."""
        if self._steps is not None:
            self._steps.cancel()
        await self.engine.stop()

    def fail_all(self, text: str) -> None:
        """Everything that is here fails, as when sampling of the batch does."""
        for place in [*self._waiting, *self._running.values()]:
            self._say([place.live.fail(text)])
            self._leave(place, is_known=place.number in self._running)

    def _order(self, place: _Place) -> tuple[float, int]:
        is_ordered = self._world.settings.has_priority
        return (-place.live.request.priority if is_ordered else 0.0, place.number)

    def _schedule(self) -> None:
        while self._waiting and self._used + self._waiting[0].spec.n <= self.info.max_num_seqs:
            place = self._waiting.pop(0)
            self._used += place.spec.n
            self._running[place.number] = place
            place.live.on_scheduled()
            self._prompt_tokens += len(place.spec.prompt)
            trap = place.live.request.trap
            if trap is not None and trap.says is not None:
                place.scripted = asyncio.create_task(self._recite(place, trap.says))
            elif trap is None or not trap.never_answers:
                self.engine.submit(place.number, place.spec)

    async def _recite(self, place: _Place, says: tuple[Said, ...]) -> None:
        for number, said in enumerate(says, 1):
            await asyncio.sleep(self._world.settings.step_ms / 1000)
            self._say(place.live.say(said, is_final=number == len(says)))
        self._leave(place, is_known=False)

    def _abort(self, place: _Place) -> None:
        if place.number in self._running and not place.live.on_abort():
            return
        if self._has_no_logits(place):
            self.fail_all("there are no logits of the prompt")
            return
        trap = place.live.request.trap
        # What waits is dropped without a word.
        if place not in self._waiting and (trap is None or not trap.ignores_abort):
            self._say(place.live.cancel())
        if place.scripted is not None:
            place.scripted.cancel()
        self._leave(place, is_known=place.number in self._running)

    def _has_no_logits(self, place: _Place) -> bool:
        """Logprobs of a prompt are read off at its request's end, too, be it that none was computed."""
        is_empty = place not in self._waiting and not place.live.token_count
        return is_empty and place.spec.output.prompt_logprobs is not None

    def _leave(self, place: _Place, *, is_known: bool) -> None:
        """It has no place here any more. is_known: the engine has to be told."""
        if place in self._waiting:
            self._waiting.remove(place)
        elif self._running.pop(place.number, None) is not None:
            self._used -= place.spec.n
            self._completed += 1
            if is_known:
                self.engine.abort(place.number)
        self._schedule()
        self._world.on_left()

    async def _run(self) -> None:
        """Until it is cancelled. An engine that fails takes the process with it."""
        try:
            await self._step_on()
        except Exception:
            traceback.print_exc()
            os._exit(1)

    async def _step_on(self) -> None:
        while True:
            step = await self.engine.next_step()
            held = self._world.before_step()
            if held is not None:
                await held
            self._on_step(step)
            if self.info.block_tokens is not None:
                # The engine that makes ids up keeps the pace by itself.
                await asyncio.sleep(self._world.settings.step_ms / 1000)

    def _on_step(self, step: EngineStep) -> None:
        new = [place for place in self._running.values() if not place.live.token_count]
        self.events.on_step(step)
        for delta in step.deltas:
            place = self._running.get(delta.engine_id)
            if place is None:
                continue
            self._cached_tokens += delta.cached_tokens
            failure = self._world.processing.failures.pop(place.live.request.id, None)
            if failure is not None:
                self.fail_all(failure)
                return
            if place.spec.guided is not None and delta.error is not None:
                # No token is left to choose: probabilities that are no numbers, and an assertion.
                self._world.lose_device(ASSERTED)
                return
            self._say(place.live.on_delta(delta))
            if delta.finish_reason is not None and delta.error is None:
                self._note_end(place, delta.index)
            if delta.is_last or place.live.is_over:
                self._leave(place, is_known=place.live.is_unwanted)
        self.rows.on_step(step, self._counts(new), self._requests())
        self.changed.set()

    def _note_end(self, place: _Place, index: int) -> None:
        """The last token was chosen and its own cache never computed."""
        ids = place.live.sequences[index].ids
        self.events.on_end([*place.spec.prompt, *ids[:-1]], place.spec.cache_salt)

    def _counts(self, new: list[_Place]) -> Counts:
        return Counts(
            active=len(self._running),
            queued=self._world.count_queued() if self.number == 0 else 0,
            completed=self._completed,
            context_requests=len(new),
            context_tokens=sum(len(place.spec.prompt) for place in new),
            cached_tokens=self._cached_tokens,
            prompt_tokens=self._prompt_tokens,
        )

    def _requests(self) -> list[Row]:
        return [
            {"id": place.live.engine_id, "stage": "GENERATION_IN_PROGRESS"}
            for place in self._running.values()
        ]

    def _say(self, messages: list[Message]) -> None:
        for message in messages:
            self._world.say(message)
