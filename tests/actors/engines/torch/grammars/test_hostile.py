"""Bad and heavy constraints in a running engine, beside healthy streams whose tokens stay the same."""

from __future__ import annotations

import random
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from actors.engines.grammars.limits import PREPARE_S
from protocols.errors import InvalidRequest
from protocols.spec import GenerationSpec, Guided, GuidedKind, Sampling, StopRules
from tests.actors.engines.grammars.world import END
from tests.actors.engines.torch import tiny_models

if TYPE_CHECKING:
    from pathlib import Path

    from tests.actors.engines.grammars.world import Guide
    from tests.actors.engines.torch.conftest import Opener
    from tests.conformance.reader import EngineReader

pytestmark = pytest.mark.anyio

PROMPTS = tiny_models.prompts((1, 5, 17, 40, 29, 3, 8, 2) * 2)
ROOM: dict[str, Any] = {"max_num_seqs": 20}


def healthy() -> list[GenerationSpec]:
    """Sixteen streams that nothing may disturb."""
    return [
        GenerationSpec(
            prompt=prompt, stop=StopRules(max_tokens=24), sampling=Sampling(temperature=1.0, seed=at)
        )
        for at, prompt in enumerate(PROMPTS)
    ]


def guided(
    kind: str, constraint: Any, *, n: int = 1, tokens: int = 40, end: int | None = None
) -> GenerationSpec:
    return GenerationSpec(
        prompt=PROMPTS[2],
        stop=StopRules(max_tokens=tokens, eos_token_ids=frozenset() if end is None else frozenset({end})),
        sampling=Sampling(temperature=1.0, seed=3),
        guided=Guided(kind=GuidedKind(kind), constraint=constraint),
        n=n,
    )


async def prepare(reader: EngineReader, spec: GenerationSpec) -> GenerationSpec:
    """As the resolver does."""
    preparer = reader.engine.preparer
    assert preparer is not None
    return preparer.find(spec) or await preparer.prepare(spec)


async def tokens_alone(reader: EngineReader) -> list[list[int]]:
    streams = [reader.submit(spec) for spec in healthy()]
    await reader.read_to_end(*streams)
    return [stream.tokens for stream in streams]


# The first three are those of a field report: engines died of them, or answered anything.
BAD: dict[str, tuple[str, Any]] = {
    "an unknown type": ("json", {"type": "objekt"}),
    "an open class": ("regex", "[a-"),
    "no JSON": ("json", "{not json"),
    "a reference to itself": ("json", {"$ref": "#"}),
    "no rule": ("grammar", "once upon a time"),
    "a rule of itself": ("grammar", "start: start"),
    "look-ahead": ("regex", "(?=a)b"),
    "no choices": ("choice", []),
    "an unknown format": ("structural_tag", {"type": "structural_tag", "format": {"type": "dispatch"}}),
    "a keyword in vain": ("json", {"type": "array", "uniqueItems": True}),
}


async def test_bad_constraints_are_refused_and_nobody_notices(
    open_engine: Opener, guided_folder: Path
) -> None:
    """Each of ten bad constraints is refused by name; sixteen streams and a plain request say the same."""
    async with open_engine(model_path=guided_folder, **ROOM) as reader:
        alone = await tokens_alone(reader)
        streams = [reader.submit(spec) for spec in healthy()]
        for name, (kind, constraint) in BAD.items():
            await reader.read_step()
            with pytest.raises(InvalidRequest) as refused:
                await prepare(reader, guided(kind, constraint))
            assert refused.value.field.startswith(f"sampling_options.guided_decoding.{kind}"), name
        await reader.read_to_end(*streams)
        after = await reader.complete(healthy()[0])
    assert [stream.tokens for stream in streams] == alone
    assert after.tokens == alone[0]


def deep(levels: int) -> Any:
    schema: Any = {"type": "integer"}
    for _ in range(levels):
        schema = {
            "type": "object",
            "properties": {"a": schema},
            "required": ["a"],
            "additionalProperties": False,
        }
    return schema


HEAVY: dict[str, tuple[str, Any]] = {
    "repeated repetitions": ("regex", "((x{100}){100}){100}"),
    "a guess of 200 letters": ("regex", "(a|b)*a(a|b){200}"),
    "words of bounded length": ("regex", r"(\w{1,500}){1,500}"),
    "an ambiguous grammar": ("grammar", 'start: s\ns: s s | "a"'),
    "a very ambiguous grammar": ("grammar", 'start: s\ns: s s s | s s | "a" | "b" | ""'),
    "three languages at once": (
        "grammar",
        "start: X\nX: /(a|b|c)*a(a|b|c){12}/ & /(a|b|c)*b(a|b|c){13}/ & /(a|b|c)*c(a|b|c){14}/",
    ),
    "1,000 optional properties": (
        "json",
        {"type": "object", "properties": {f"p{at}": {"type": "string"} for at in range(1_000)}},
    ),
    "a million items": ("json", {"type": "array", "items": {"type": "integer"}, "minItems": 1_000_000}),
    "all of eight times any of six": (
        "json",
        {
            "allOf": [
                {"anyOf": [{"type": "object", "required": [f"p{i}{j}"]} for j in range(6)]} for i in range(8)
            ]
        },
    ),
    "31 objects in one another": ("json", deep(31)),
}


REFUSED = {"repeated repetitions", "1,000 optional properties", "all of eight times any of six"}
# Of this process, which also holds the states of the sequence: 50,000 of one or two KiB at the most.
MOST_GROWTH_BYTES = 128 * 2**20
# Between two steps. A step waits 20 ms for foreign code; the rest is for a machine with other things to do.
LONGEST_GAP_S = 1.0


@pytest.mark.parametrize("name", HEAVY)
async def test_heavy_constraints_are_refused_or_followed(
    name: str, open_engine: Opener, guided_folder: Path, guide: Guide
) -> None:
    """Within the time for preparing it is refused, or it is followed to the letter, step by step without a
    gap, in bounded memory; sixteen streams say the same."""
    kind, constraint = HEAVY[name]
    async with open_engine(model_path=guided_folder, **ROOM) as reader:
        alone = await tokens_alone(reader)
        # The process for trials is up: what follows is the constraint's own time.
        await prepare(reader, guided("regex", "a"))
        began_s, began_bytes = time.monotonic(), psutil.Process().memory_info().rss
        streams = [reader.submit(spec) for spec in healthy()]
        heavy, field = None, ""
        try:
            heavy = reader.submit(await prepare(reader, guided(kind, constraint, tokens=200)))
        except InvalidRequest as exc:
            field = exc.field
        assert time.monotonic() - began_s < 2 * PREPARE_S
        gaps_s = await read_gaps(reader)
        grown_bytes = psutil.Process().memory_info().rss - began_bytes
    assert [stream.tokens for stream in streams] == alone
    assert field == (f"sampling_options.guided_decoding.{kind}" if name in REFUSED else "")
    assert grown_bytes < MOST_GROWTH_BYTES
    if heavy is not None:
        assert heavy.error is None
        assert max(gaps_s) < LONGEST_GAP_S
        assert guide.follows(guide.compile(kind, constraint), heavy.tokens)


async def read_gaps(reader: EngineReader) -> list[float]:
    """Read to the end; seconds from the end of each step to the end of the next, while anybody lives."""
    ends_s: list[float] = []
    while reader.live:
        ends_s.append((await reader.read_step()).ended_s)
    return [later - earlier for earlier, later in pairwise(ends_s)]


async def test_guided_answers_in_company(open_engine: Opener, guided_folder: Path, guide: Guide) -> None:
    """Guided choices and streams run in one batch: all choices obey, and the streams say the same."""
    end = guide.vocabulary.special[END]
    async with open_engine(model_path=guided_folder, **ROOM) as reader:
        alone = await tokens_alone(reader)
        streams = [reader.submit(spec) for spec in healthy()]
        spec = await prepare(reader, guided("choice", ["yes", "no", "perhaps"], n=3, end=end))
        asked = reader.submit(spec)
        await reader.read_to_end(asked, *streams)
    assert [stream.tokens for stream in streams] == alone
    said = [guide.text([token for token in tokens if token != end]) for tokens in asked.token_ids]
    assert set(said) <= {"yes", "no", "perhaps"}
    assert set(asked.reasons.values()) == {"stop"}


async def test_preemption_loses_no_state(open_engine: Opener, guided_folder: Path, guide: Guide) -> None:
    """A guided request that loses its blocks and is computed again goes on where it was."""
    spec = guided("regex", "(ab){15}")
    async with open_engine(model_path=guided_folder, kv_pool_tokens=72, max_seq_len=72) as reader:
        prepared = await prepare(reader, spec)
        asked = [reader.submit(prepared) for _ in range(4)]
        await reader.read_to_end(*asked)
    assert [guide.text(one.tokens) for one in asked] == ["ab" * 15] * 4


async def test_nothing_but_the_grammar(open_engine: Opener, guided_folder: Path, guide: Guide) -> None:
    """With any seed and also greedily, no token is chosen that the mask does not let through."""
    async with open_engine(model_path=guided_folder) as reader:
        for seed in range(4):
            temperature = random.Random(seed).choice([0.0, 3.0])
            spec = guided("regex", "[0-9]{20}")
            spec = GenerationSpec(
                prompt=spec.prompt,
                stop=spec.stop,
                guided=spec.guided,
                sampling=Sampling(temperature=temperature, seed=seed),
            )
            heard = await reader.complete(await prepare(reader, spec))
            assert guide.text(heard.tokens).isdecimal()
            assert heard.reason == "stop"
