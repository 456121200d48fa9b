"""The rules by which a request becomes a spec: pure functions, one per group of fields.

A value is accepted, completed from what the engine said at its start, or refused by name.
Nothing is dropped: an option that the engine would not obey is refused unless it is neutral.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from actors.asked_constraint import asked_constraint
from actors.asked_processors import asked_processors
from actors.choice_search import choice_search
from actors.lacking import lacking
from actors.placement import place
from actors.prompt_length import PromptLength
from actors.together import check_together
from protocols.engine import NEVER, EngineCapabilities, EngineInfo
from protocols.errors import InvalidRequest
from protocols.requests import GenerateRequest, SamplingOptions
from protocols.spec import (
    GenerationSpec,
    Output,
    ProcessorEntry,
    Sampling,
    Stage,
    StopRules,
)

# OpenAI's range for both; the frontend checks it too, but not every caller is the frontend.
_PENALTY = (-2.0, 2.0)
_SEED_MASK = 2**64 - 1
# Beyond these, logits leave the range of 32-bit floats; nobody can tell answers from noise long before.
_HOTTEST = 1000.0
_REPETITION = (0.01, 100.0)
# Logits divided by less leave the range of 32-bit floats, or become 0 / 0: taken for greedy.
_SMALLEST_TEMPERATURE = 1e-6


def fresh_seed() -> int:
    """A seed for a request that named none: two such requests never share one by design."""
    return secrets.randbits(64)


def seeds_from(default: int | None) -> Callable[[], int]:
    """Where requests without a seed get theirs: always the operator's, or a fresh one each."""
    return fresh_seed if default is None else lambda: default


@dataclass(frozen=True, slots=True)
class SpecRules:
    """What the engine of this worker can do, as a judge of requests."""

    engine: str
    capabilities: EngineCapabilities
    info: EngineInfo
    capacity: int
    new_seed: Callable[[], int] = fresh_seed
    default_processors: tuple[ProcessorEntry, ...] = ()

    def resolve(self, request: GenerateRequest) -> GenerationSpec:
        """The engine-ready form. Raises InvalidRequest: field, value, what is allowed."""
        self._refuse_unsupported(request)
        placed = place(request, self.engine, self.capabilities, self.info)
        self._check_prompt(request.token_ids, placed.stage)
        options = request.sampling_options
        n = self._choices(options)
        spec = GenerationSpec(
            prompt=tuple(request.token_ids),
            n=n,
            search=choice_search(options, n, self.engine, self.capabilities, self.capacity),
            sampling=self._sampling(options),
            stop=self._stop_rules(request),
            output=self._output(request),
            guided=asked_constraint(options.guided_decoding, self.engine, self.capabilities),
            processors=self.default_processors
            + asked_processors(request.annotations, self.capabilities.processors),
            thinking_tokens=request.stop_conditions.max_thinking_tokens,
            rank=placed.rank,
            conversation_id=placed.conversation_id,
            adapter=placed.adapter,
            stage=placed.stage,
            handoff=placed.handoff,
            priority=placed.priority,
            cache_salt=placed.cache_salt,
            is_probe=request.is_probe,
        )
        check_together(spec, self.capabilities)
        return spec

    def _refuse_unsupported(self, request: GenerateRequest) -> None:
        asked: dict[str, object] = {
            "multi_modal_data": request.multi_modal_data,
            "multi_modal_uuids": request.multi_modal_uuids,
            "mm_processor_kwargs": request.mm_processor_kwargs,
            "prompt_embeds": request.prompt_embeds,
            "encoder_result": request.encoder_result,
            "bootstrap_info": request.bootstrap_info,
        }
        for field, value in asked.items():
            if value is not None:
                raise lacking(field, value, self.engine)
        thinking, why = request.stop_conditions.max_thinking_tokens, self.capabilities.no_thinking_budget
        if thinking is not None and why:
            raise lacking("stop_conditions.max_thinking_tokens", thinking, self.engine, why)

    def _check_prompt(self, token_ids: list[int], stage: Stage) -> None:
        length, context = len(token_ids), self.info.context_length
        if length == 0:
            raise InvalidRequest("token_ids", token_ids, "at least one token")
        if length >= context:
            allowed = f"at most {context - 1} tokens, so that one fits into the context of {context}"
            raise InvalidRequest("token_ids", PromptLength(length), allowed)
        longest = self.info.max_prompt_tokens
        # A prompt that was computed elsewhere takes no step.
        if longest is not None and length > longest and stage is not Stage.DECODE:
            allowed = f"at most {longest} tokens in one step (--max-num-tokens, no chunked prefill)"
            raise InvalidRequest("token_ids", PromptLength(length), allowed)
        if max(token_ids) >= self.info.vocab_size:
            where = next(i for i, token in enumerate(token_ids) if token >= self.info.vocab_size)
            raise InvalidRequest(f"token_ids[{where}]", token_ids[where], self._id_range())

    def _choices(self, options: SamplingOptions) -> int:
        n = 1 if options.n is None else options.n
        most = min(self.capabilities.max_n, self.capacity)
        if not 1 <= n <= most:
            raise InvalidRequest("sampling_options.n", n, f"1 to {most} with engine {self.engine!r}")
        return n

    def _sampling(self, options: SamplingOptions) -> Sampling:
        sampling = Sampling(
            temperature=_temperature(options),
            top_k=_top_k(options.top_k, self.info.vocab_size),
            top_p=_ranged("top_p", options.top_p, 1.0, above=0.0, most=1.0),
            min_p=_ranged("min_p", options.min_p, 0.0, least=0.0, most=1.0),
            repetition_penalty=_ranged("repetition_penalty", options.repetition_penalty, 1.0, *_REPETITION),
            presence_penalty=_ranged("presence_penalty", options.presence_penalty, 0.0, *_PENALTY),
            frequency_penalty=_ranged("frequency_penalty", options.frequency_penalty, 0.0, *_PENALTY),
            seed=self.new_seed() if options.seed is None else options.seed & _SEED_MASK,
        )
        self._refuse_disobeyed(sampling)
        return sampling

    def _refuse_disobeyed(self, sampling: Sampling) -> None:
        """An option that is not neutral and that the engine does not know would be a silent lie."""
        for name in Sampling.__struct_fields__:
            if name == "seed" or name in self.capabilities.sampling:
                continue
            value, neutral = getattr(sampling, name), getattr(_NEUTRAL, name)
            if value != neutral:
                allowed = f"{neutral} only; engine {self.engine!r}: {NEVER}"
                raise InvalidRequest(f"sampling_options.{name}", value, allowed)

    def _stop_rules(self, request: GenerateRequest) -> StopRules:
        """Completed and clamped: the answer ends at the end of the context at the latest.

        ``min_tokens`` is clamped to ``max_tokens``: a request that was moved here arrives with
        the second reduced and the first not, and refusing it would lose it.
        """
        stop = request.stop_conditions
        room = self.info.context_length - len(request.token_ids)
        max_tokens = room if stop.max_tokens is None else min(stop.max_tokens, room)
        asked = self._stop_ids("stop_token_ids", stop.stop_token_ids)
        asked |= self._stop_ids("stop_token_ids_visible", stop.stop_token_ids_visible)
        # The frontend reads these from the model's description; ids its weights cannot say end nothing.
        described = (*(request.eos_token_ids or ()), *(stop.stop_token_ids_hidden or ()))
        ends = frozenset(token for token in described if token < self.info.vocab_size)
        eos = frozenset[int]() if stop.ignore_eos else ends - asked
        if stop.min_tokens and len(eos) + len(asked) >= self.info.vocab_size:
            allowed = "0, as every token id of the vocabulary ends the answer"
            raise InvalidRequest("stop_conditions.min_tokens", stop.min_tokens, allowed)
        return StopRules(
            max_tokens=max_tokens,
            min_tokens=min(stop.min_tokens or 0, max_tokens),
            eos_token_ids=eos,
            stop_token_ids=asked,
        )

    def _stop_ids(self, name: str, token_ids: list[int] | None) -> frozenset[int]:
        for token in token_ids or ():
            if token >= self.info.vocab_size:
                raise InvalidRequest(f"stop_conditions.{name}", token, self._id_range())
        return frozenset(token_ids or ())

    def _output(self, request: GenerateRequest) -> Output:
        output = request.output_options
        why = NEVER if self.capabilities.max_logprobs is None else ""
        self._check_logprobs("logprobs", output.logprobs, why)
        self._check_logprobs(
            "prompt_logprobs", output.prompt_logprobs, why or self.capabilities.no_prompt_logprobs
        )
        return Output(logprobs=output.logprobs, prompt_logprobs=output.prompt_logprobs)

    def _check_logprobs(self, name: str, asked: int | None, why_none: str) -> None:
        """Alternatives per token."""
        if asked is None:
            return
        field, most = f"output_options.{name}", self.capabilities.max_logprobs or 0
        if why_none:
            raise lacking(field, asked, self.engine, why_none)
        if not 0 <= asked <= most:
            raise InvalidRequest(field, asked, f"0 to {most}")

    def _id_range(self) -> str:
        return f"token ids from 0 to {self.info.vocab_size - 1}"


_NEUTRAL = Sampling()


def _temperature(options: SamplingOptions) -> float:
    """Greedy unless the request says otherwise: TensorRT-LLM's rule, kept for every engine.

    A request that limits the candidates (top_k, top_p, min_p) but names no temperature wants
    sampling at 1.0; one that names nothing gets the most likely tokens.
    """
    if options.temperature is not None:
        temperature = _ranged("temperature", options.temperature, 0.0, least=0.0, most=_HOTTEST)
        return temperature if temperature >= _SMALLEST_TEMPERATURE else 0.0
    limits = (options.top_k, options.top_p, options.min_p)
    return 0.0 if all(limit is None for limit in limits) else 1.0


def _top_k(value: int | None, vocab_size: int) -> int:
    """-1, 0 and everything that leaves no token out mean no limit; the engine sees 0."""
    if value is not None and value < -1:
        raise InvalidRequest("sampling_options.top_k", value, "-1 or 0 for no limit, or a number above 0")
    return value if value is not None and 0 < value < vocab_size else 0


def _ranged(
    name: str,
    value: float | None,
    default: float,
    least: float = -math.inf,
    most: float = math.inf,
    above: float = -math.inf,
) -> float:
    if value is None:
        return default
    value = _finite(f"sampling_options.{name}", value, default)
    if not (least <= value <= most and value > above):
        low = f"above {above:g}" if above > -math.inf else f"at least {least:g}"
        high = f", at most {most:g}" if most < math.inf else ""
        raise InvalidRequest(f"sampling_options.{name}", value, f"{low}{high}")
    return value


def _finite(field: str, value: float | None, default: float) -> float:
    if value is None:
        return default
    if not math.isfinite(value):
        raise InvalidRequest(field, value, "a finite number")
    return float(value)
