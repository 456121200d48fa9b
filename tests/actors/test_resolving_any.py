"""Whatever is asked: a spec within bounds, or a refusal that names field, value and what is allowed."""

from __future__ import annotations

import math
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import InvalidRequest
from protocols.requests import decode_request
from protocols.spec import GenerationSpec
from tests.actors.judges import CONTEXT, LARGEST_SEED, VOCAB, rules
from tests.doubles.callers import wire_request


def check_bounds(spec: GenerationSpec) -> None:
    """What every engine may rely on."""
    sampling, stop = spec.sampling, spec.stop
    assert 1 <= len(spec.prompt) < CONTEXT
    assert all(0 <= token < VOCAB for token in spec.prompt)
    assert 1 <= stop.max_tokens <= CONTEXT - len(spec.prompt)
    assert 0 <= stop.min_tokens <= stop.max_tokens
    assert all(0 <= token < VOCAB for token in stop.eos_token_ids | stop.stop_token_ids)
    assert not stop.eos_token_ids & stop.stop_token_ids
    assert 1 <= spec.n <= 8
    assert sampling.temperature == 0 or 1e-6 <= sampling.temperature < math.inf
    assert 0 <= sampling.top_k < VOCAB
    assert 0 < sampling.top_p <= 1
    assert 0 <= sampling.min_p <= 1
    assert 0 < sampling.repetition_penalty < math.inf
    assert abs(sampling.presence_penalty) <= 2
    assert abs(sampling.frequency_penalty) <= 2
    assert 0 <= sampling.seed <= LARGEST_SEED
    assert math.isfinite(spec.priority)
    assert spec.output.logprobs is None or 0 <= spec.output.logprobs <= 20
    assert spec.output.prompt_logprobs is None or 0 <= spec.output.prompt_logprobs <= 20


def resolve_or_refuse(wire: Any) -> bool:
    """Whether it was accepted; anything but a sound spec or an InvalidRequest fails the test."""
    refused: InvalidRequest | None = None
    try:
        check_bounds(rules().resolve(decode_request(wire)))
    except InvalidRequest as exc:
        refused = exc
    assert refused is None or (refused.field and refused.allowed)
    return refused is None


ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 63, 64, 99, 100, 101, 2**31, 2**32, 2**63, 2**64, -(2**63), 10**400,
    0.0, -0.0, 0.5, 1.0, 1.5, -0.5, 5e-324, 1e308, math.inf, -math.inf, math.nan, "", "1", "x", b"x", 1 + 2j,
    [], [1], [-1], [100], [2**32], ["x"], [[1]], (1, 2), {}, {"a": 1}, {"json": "{"}, {"n": 2},
    {"priority": math.nan}, {"dp_rank": -1},
)  # fmt: skip
GROUPED = {key: group for group in ("stop_conditions", "sampling_options", "output_options")
           for key in wire_request()[group]}  # fmt: skip
PLACES = (
    *GROUPED,
    *wire_request(),
    "routing",
    "extra_args",
    "multi_modal_data",
    "lora_name",
    "_HEALTH_CHECK",
)


def test_ten_thousand_requests_with_odd_values_resolve_or_are_refused() -> None:
    """Each field gets each odd value, alone and in company; nothing but InvalidRequest is raised."""
    dice = random.Random(20_240_607)
    accepted = sum(resolve_or_refuse(wire_request(**{place: value})) for place in PLACES for value in ODD)
    for _ in range(12_000):
        wire = wire_request([dice.randrange(VOCAB)] * dice.choice((0, 1, 5, 62, 63, 64, 200)))
        for _ in range(dice.choice((0, 1, 1, 2, 3))):
            place, value = dice.choice(PLACES), dice.choice(ODD)
            group = wire.get(GROUPED.get(place, ""))
            if isinstance(group, dict):
                group[place] = value
            else:
                wire[place] = value
        accepted += resolve_or_refuse(wire)
    assert accepted > 1_000


@given(
    length=st.integers(0, CONTEXT + 2),
    options=st.dictionaries(
        st.sampled_from(sorted(GROUPED)), st.none() | st.integers() | st.floats(), max_size=5
    ),
    end=st.integers(0, 2 * VOCAB),
)
def test_any_numbers_resolve_within_bounds_or_are_refused(
    length: int, options: dict[str, Any], end: int
) -> None:
    """The same promise, searched and shrunk by Hypothesis."""
    resolve_or_refuse(wire_request([7] * length, **{"stop_token_ids_hidden": [end], **options}))
