"""The engine's process from the inside: requests come in, are checked, and find their rank."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from dataclasses import fields, is_dataclass
from pathlib import Path

from protocols.spec import GenerationSpec
from tensorrt_llm._double.backing import backing_of
from tensorrt_llm._double.dying import Dying
from tensorrt_llm._double.guiding import guided, is_guided
from tensorrt_llm._double.late import ILLEGAL_ACCESS, Late
from tensorrt_llm._double.live import LiveRequest, Message
from tensorrt_llm._double.mapping import end_rules_of, spec_of, stage_of
from tensorrt_llm._double.processing import Processing
from tensorrt_llm._double.rank import Rank, World
from tensorrt_llm._double.ranking import Ranking
from tensorrt_llm._double.reusing import Reuse
from tensorrt_llm._double.sleeping import Sleeping
from tensorrt_llm._double.transfers import Transfers
from tensorrt_llm._double.wire import CancellingRequest, GenerationRequest, Ready, Settings
from tensorrt_llm.bindings.executor import ContextPhaseParams, RequestType
from tensorrt_llm.executor.utils import ErrorResponse


class EngineRoom:
    """Event loop only. say: sends a message to the caller's process."""

    def __init__(self, settings: Settings, dying: Dying) -> None:
        self.settings = settings
        self.ranks: list[Rank] = []
        self.transfers = Transfers(settings.transfers, settings.transfer_timeout_s)
        self.sleeping = Sleeping(self, settings)
        self._dying = dying
        self._say = dying.say
        self._processing = Processing(settings)
        self._ranking = Ranking(settings)
        self._reuse = Reuse(settings)
        self._engine_ids = itertools.count(2048)
        # Requests that are being prepared, by client id; and those that wait for the engine to wake.
        self._preparing: dict[int, tuple[asyncio.Task[None], LiveRequest]] = {}
        self._held: list[GenerationRequest] | None = None
        # Set whenever there may be less to do.
        self._left = asyncio.Event()

    async def open(self) -> Ready:
        """Load an engine for each rank."""
        world = self._world()
        for number in range(self.settings.ranks):
            engine = backing_of(self.settings, self._processing)
            self.ranks.append(Rank(number, engine, await engine.start(), world))
        for rank in self.ranks:
            rank.begin()
        info = self.ranks[0].info
        return Ready(info.vocab_size, info.context_length, self.ranks[0].total_blocks)

    def _world(self) -> World:
        return World(
            settings=self.settings,
            processing=self._processing,
            say=self._say,
            before_step=self._dying.before_step,
            on_left=self._left.set,
            lose_device=self._lose_device,
            count_queued=lambda: sum(rank.queued for rank in self.ranks),
        )

    async def reload(self) -> None:
        """New engines with empty caches, and nobody is told that the old content is gone."""
        world = self._world()
        self._reuse.forget()
        for place, rank in enumerate(self.ranks):
            await rank.stop()
            engine = backing_of(self.settings, self._processing)
            fresh = Rank(place, engine, await engine.start(), world)
            rank.events.forget()
            fresh.events, fresh.rows, fresh.changed = rank.events, rank.rows, rank.changed
            self.ranks[place] = fresh
            fresh.begin()

    def on_request(self, request: GenerationRequest) -> None:
        """A request has arrived."""
        self._write_down(request)
        if self._held is not None:
            self._held.append(request)
            return
        if self.sleeping.is_asleep:
            # Whoever computes with memory that is not there loses everything.
            self._say(ErrorResponse(request.id, ILLEGAL_ACCESS, 0))
            self._lose_device(ILLEGAL_ACCESS)
            return
        try:
            self._begin(request)
        except Late as exc:
            self._say(ErrorResponse(request.id, str(exc), 0))

    def on_cancel(self, cancel: CancellingRequest) -> None:
        """Unknown and finished requests are none of our business."""
        preparing = self._preparing.pop(cancel.id, None)
        if preparing is not None:
            task, live = preparing
            task.cancel()
            self._say_all(live.cancel())
            return
        any(rank.abort(cancel.id) for rank in self.ranks)

    async def drained(self) -> None:
        """Hold what arrives from now on, and wait until nothing runs."""
        self._held = []
        while self._preparing or any(rank.load for rank in self.ranks):
            self._left.clear()
            await self._left.wait()

    def release(self) -> None:
        """What was held is taken in, whatever has become of the engine meanwhile."""
        held, self._held = self._held or [], None
        for request in held:
            self.on_request(request)

    async def close(self) -> None:
        """Finish what was begun no further."""
        for rank in self.ranks:
            await rank.stop()
        self.transfers.close()

    def _begin(self, request: GenerationRequest) -> None:
        rank = self.ranks[self._ranking.choose(request, [each.load for each in self.ranks])]
        spec = spec_of(request, self.settings, rank.info.vocab_size, rank.info.context_length)
        self._check_adapter(request)
        if stage_of(request) is RequestType.REQUEST_TYPE_CONTEXT_ONLY:
            self.transfers.check()
        engine_id = self._engine_id(request)
        spec = self._processing.attach(spec, request, engine_id)
        live = self._live(request, engine_id, spec, rank)
        is_decode = live.stage is RequestType.REQUEST_TYPE_GENERATION_ONLY
        if is_decode or is_guided(request.sampling_params, self.settings):
            task = asyncio.create_task(self._prepare(live, spec, rank))
            self._preparing[request.id] = task, live
        else:
            rank.submit(live, spec)

    async def _prepare(self, live: LiveRequest, spec: GenerationSpec, rank: Rank) -> None:
        request = live.request
        try:
            if live.stage is RequestType.REQUEST_TYPE_GENERATION_ONLY:
                await self._fetch(live)
            if is_guided(request.sampling_params, self.settings):
                spec = await guided(spec, request.sampling_params, rank.engine, self.settings.guided_backend)
            rank.submit(live, spec)
        except Late as exc:
            self._say(live.fail(str(exc)))
        finally:
            self._preparing.pop(request.id, None)
            self._left.set()

    async def _fetch(self, live: LiveRequest) -> None:
        """Get a prefill's cache. Raises Late."""
        params = live.request.disaggregated_params
        assert params is not None
        try:
            context = params.get_context_phase_params()
        except TypeError as exc:
            raise Late(str(exc)) from exc
        began_s = time.monotonic()
        await asyncio.sleep(self.settings.script.transfer_s)
        self.transfers.fetch(context.opaque_state, live.request.prompt_token_ids)
        if self.settings.script.transfer_error is not None:
            raise Late(self.settings.script.transfer_error)
        live.on_transfer(began_s, time.monotonic())
        live.first_tokens = list(context.first_gen_tokens)

    def _live(
        self, request: GenerationRequest, engine_id: int, spec: GenerationSpec, rank: Rank
    ) -> LiveRequest:
        def hand_over(first_tokens: list[int]) -> ContextPhaseParams:
            state = self.transfers.leave(request.prompt_token_ids, first_tokens)
            return ContextPhaseParams(first_tokens, engine_id, state, None, rank.number, None)

        script = self.settings.script
        rules = end_rules_of(request.sampling_params, spec.stop.max_tokens, script.has_length_first)
        return LiveRequest(
            request,
            engine_id,
            script,
            rules,
            self.settings.stream_interval,
            blocks=self._reuse.blocks_of(request, rank.number),
            hand_over=hand_over,
        )

    def _engine_id(self, request: GenerationRequest) -> int:
        """One that both sides know goes before one of our own."""
        params = request.disaggregated_params
        given = None if params is None else params.disagg_request_id
        return next(self._engine_ids) if given is None else given

    def _check_adapter(self, request: GenerationRequest) -> None:
        """Without a configuration for adapters a request's is passed over without a word. Raises Late."""
        adapter = request.lora_request
        if adapter is None or not self.settings.has_lora:
            return
        if not (Path(adapter.path) / "adapter_config.json").is_file():
            raise Late(f"failed to load LoRA adapter {adapter.adapter_id}")

    def _lose_device(self, text: str) -> None:
        """With all that is on it."""
        for rank in self.ranks:
            rank.fail_all(text)
        self._dying.die_soon()

    def _say_all(self, messages: list[Message]) -> None:
        for message in messages:
            self._say(message)

    def _write_down(self, request: GenerationRequest) -> None:
        """For tests that look at what arrives: one line a request."""
        if self.settings.script.journal is None:
            return
        with Path(self.settings.script.journal).open("a") as journal:
            journal.write(json.dumps(_plain(request)) + "\n")


def _plain(value: object) -> object:
    """As JSON has it; what JSON has not is its type's name."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return type(value).__name__
