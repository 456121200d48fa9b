"""Logits processors in the engine: each harms its own request only, whatever it does."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.torch import steering
from actors.engines.torch.choosing import Chooser
from protocols.spec import GenerationSpec, Guided, GuidedKind, Output, ProcessorEntry, Sampling, StopRules
from protocols.steps import FinishReason
from tests.actors.engines.torch import tiny_models
from tests.actors.engines.torch.hostile_processors import (
    BROKEN,
    ODD,
    Hanging,
    Looping,
    Sleeping,
    SlowToMake,
    Temperature,
    without_lines,
)
from tests.actors.engines.torch.scripted_grammars import ScriptedGrammar
from tests.doubles.threads import join_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.actors.engines.torch.conftest import Opener
    from tests.conformance.reader import EngineReader, Heard

pytestmark = pytest.mark.anyio

HEALTHY = 16
ROOM: dict[str, Any] = {"max_num_seqs": 48, "step_tokens": 256}
FACTORIES: dict[str, Any] = {
    "hanging": Hanging,
    "looping": Looping,
    "sleeping": Sleeping,
    "slow-to-make": SlowToMake,
    "temperature": Temperature,
    **{name: factory for name, (factory, _) in BROKEN.items()},
    **ODD,
}


@pytest.fixture(autouse=True)
def _hanging_ones_are_let_go() -> Iterator[None]:
    """At the end of each test, and their threads have ended."""
    Hanging.word = threading.Event()
    yield
    Hanging.word.set()
    join_threads("torch-processors")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds are a long time in a test."""
    monkeypatch.setattr(steering, "GIVE_UP_S", 0.3)


def spec(
    *names: str, seed: int = 5, tokens: int = 24, prompt: tuple[int, ...] = (5, 6, 7), **fields: Any
) -> GenerationSpec:
    return GenerationSpec(
        prompt=prompt,
        stop=StopRules(max_tokens=tokens),
        sampling=Sampling(temperature=1.0, seed=seed),
        processors=tuple(ProcessorEntry(name=name) for name in names),
        **fields,
    )


def healthy() -> list[GenerationSpec]:
    return [spec(seed=seed, prompt=(3 + seed, 9, 4)) for seed in range(HEALTHY)]


async def undisturbed(reader: EngineReader) -> list[list[int]]:
    """What the healthy ones say among themselves."""
    heard = [reader.submit(one) for one in healthy()]
    await reader.read_to_end(*heard)
    return [one.tokens for one in heard]


async def read_all(reader: EngineReader, *heard: Heard) -> None:
    """To their ends, whatever these are."""
    await reader.read_until(lambda: all(one.is_ended for one in heard))


async def test_what_is_broken_fails_by_name_and_alone(open_engine: Opener) -> None:
    """All at once beside sixteen healthy streams, whose tokens are unchanged; the next request is served."""
    async with open_engine(processors=FACTORIES, **ROOM) as reader:
        expected = await undisturbed(reader)
        good = [reader.submit(one) for one in healthy()]
        bad = {name: reader.submit(spec(name)) for name in BROKEN}
        await read_all(reader, *good, *bad.values())
        after = await undisturbed(reader)
    assert [one.tokens for one in good] == expected
    told = {name: f"logits processor {name!r} {what}" for name, (_, what) in BROKEN.items()}
    assert {name: without_lines(one.error) for name, one in bad.items()} == told
    assert after == expected


async def test_what_is_odd_goes_on_and_harms_nobody(open_engine: Opener) -> None:
    """Rows that are kept, gradients, thread counts: neighbours and the request itself end as they should."""
    async with open_engine(processors=FACTORIES, **{**ROOM, "threads": 2}) as reader:
        expected = await undisturbed(reader)
        good = [reader.submit(one) for one in healthy()]
        odd = {name: reader.submit(spec(name)) for name in ODD}
        plain = reader.submit(spec())
        await reader.read_to_end(*good, *odd.values(), plain)
    assert [one.tokens for one in good] == expected
    del odd["keeping"]
    assert all(one.tokens == plain.tokens for one in odd.values())


@pytest.mark.parametrize("name", ["hanging", "looping"])
async def test_who_never_comes_back_is_given_up(open_engine: Opener, name: str, impatient: None) -> None:
    """Eight of them, some with choices: failed by name; healthy streams keep their tokens meanwhile."""
    async with open_engine(processors=FACTORIES, **ROOM) as reader:
        expected = await undisturbed(reader)
        bad = [reader.submit(spec(name, n=1 + number % 2)) for number in range(8)]
        good = [reader.submit(one) for one in healthy()]
        await reader.read_to_end(*good)
        await read_all(reader, *bad)
        after = await reader.complete(spec("temperature"))
    assert [one.tokens for one in good] == expected
    assert {one.error for one in bad} == {f"logits processor {name!r} did not return within 0.3 s"}
    assert len(after.tokens) == 24


async def test_who_is_slow_is_slow_alone(open_engine: Opener) -> None:
    """Fifty milliseconds a token are his own; healthy streams end long before, and he says what he should."""
    async with open_engine(processors=FACTORIES, **ROOM) as reader:
        expected = await undisturbed(reader)
        plain = await reader.complete(spec(tokens=8))
        slow = [reader.submit(spec("sleeping", tokens=8)) for _ in range(4)]
        good = [reader.submit(one) for one in healthy()]
        await reader.read_to_end(*good)
        assert not any(one.is_ended for one in slow)
        await reader.read_to_end(*slow)
    assert [one.tokens for one in good] == expected
    assert [one.tokens for one in slow] == [plain.tokens] * 4


async def test_a_late_token_is_chosen_from_what_the_model_said(open_engine: Opener) -> None:
    """Tokens, logprobs of them and of the prompt are those of a request that was never late."""

    async def read(reader: EngineReader, *names: str) -> tuple[list[Any], list[Any]]:
        heard = reader.submit(spec(*names, tokens=6, output=Output(logprobs=3, prompt_logprobs=1)))
        positions: list[Any] = []
        prompt: list[Any] = []
        while not heard.is_ended:
            for delta in (await reader.read_step()).deltas:
                positions += delta.positions or []
                prompt += delta.prompt_positions or []
        assert heard.error is None
        return positions, prompt

    async with open_engine(processors=FACTORIES) as reader:
        assert await read(reader, "sleeping") == await read(reader)


async def test_who_is_late_may_lose_his_blocks_meanwhile(open_engine: Opener) -> None:
    """Preempted while a processor sleeps: the token still belongs behind what he had."""
    prompts = tiny_models.prompts((17, 29, 23))
    async with open_engine(processors=FACTORIES) as reader:
        expected = [(await reader.complete(spec(prompt=prompt, tokens=16))).tokens for prompt in prompts]
    async with open_engine(processors=FACTORIES, kv_pool_tokens=96, max_seq_len=96) as reader:
        heard = [reader.submit(spec("sleeping", prompt=prompt, tokens=16)) for prompt in prompts]
        await reader.read_to_end(*heard)
    assert [one.tokens for one in heard] == expected


async def test_a_client_who_leaves_need_not_wait_for_a_processor(open_engine: Opener) -> None:
    """The abort of a request that hangs is confirmed in the next step, and its slot is free."""
    async with open_engine(processors=FACTORIES, max_num_seqs=1) as reader:
        heard = reader.submit(spec("hanging"))
        await reader.read_step()
        reader.engine.abort(heard.engine_id)
        await read_all(reader, heard)
        assert heard.last_reason is FinishReason.CANCELLED
        assert len((await reader.complete(spec())).tokens) == 24


async def test_an_engine_that_waits_for_a_processor_is_alive(open_engine: Opener, impatient: None) -> None:
    """With nothing else to do it makes steps without tokens, so that nobody takes it for hung."""
    async with open_engine(processors=FACTORIES) as reader:
        heard = reader.submit(spec("hanging"))
        steps = [await reader.read_step() for _ in range(2)]
        assert not any(step.deltas for step in steps)
        await read_all(reader, heard)


async def test_an_engine_can_be_stopped_while_one_hangs(open_engine: Opener) -> None:
    """Its thread ends; the processor's ends when it comes back."""
    async with open_engine(processors=FACTORIES) as reader:
        reader.submit(spec("hanging"))
        await reader.read_step()
        with_engine = {thread.name for thread in threading.enumerate()}
        await reader.engine.stop()
        assert "torch-engine" in with_engine
        assert "torch-engine" not in {thread.name for thread in threading.enumerate()}


async def test_a_slow_factory_is_no_slow_processor(open_engine: Opener) -> None:
    """Nobody waits for it, and afterwards the request runs in company."""
    async with open_engine(processors=FACTORIES, **ROOM) as reader:
        expected = await undisturbed(reader)
        slow = reader.submit(spec("slow-to-make"))
        good = [reader.submit(one) for one in healthy()]
        await reader.read_to_end(slow, *good)
    assert [one.tokens for one in good] == expected


async def test_every_choice_has_its_own_state(open_engine: Opener) -> None:
    """A processor that counts its calls forces the same tokens in each of them."""

    class Forcing:
        def __init__(self, tokens: list[int]) -> None:
            self._left = list(tokens)

        def __call__(self, input_ids: list[int], logits: Any) -> None:
            wanted = self._left.pop(0)
            logits.fill_(float("-inf"))
            logits[wanted] = 0.0

    entry = ProcessorEntry(name="forcing", options={"tokens": [9, 8, 7, 6]})
    forced = GenerationSpec(
        prompt=(1, 2, 3),
        stop=StopRules(max_tokens=9, eos_token_ids=frozenset({6})),
        sampling=Sampling(temperature=1.0, seed=3),
        processors=(entry, ProcessorEntry(name="temperature")),
        n=3,
    )
    async with open_engine(processors={"forcing": Forcing, "temperature": Temperature}) as reader:
        for _ in range(2):
            heard = await reader.complete(forced)
            assert heard.token_ids == [[9, 8, 7, 6]] * 3
            assert set(heard.reasons.values()) == {FinishReason.EOS}


async def test_a_processor_against_the_stop_rules_leaves_nothing(open_engine: Opener) -> None:
    """Forced to end where ending is forbidden: an error that says so, and no token of the two."""

    def factory() -> Callable[[list[int], Any], None]:
        def force(_input_ids: list[int], logits: Any) -> None:
            logits.fill_(float("-inf"))
            logits[6] = 0.0

        return force

    stop = StopRules(max_tokens=9, min_tokens=3, eos_token_ids=frozenset({6}))
    asked = GenerationSpec(prompt=(1, 2), stop=stop, processors=(ProcessorEntry(name="forcing"),))
    async with open_engine(processors={"forcing": factory}) as reader:
        heard = reader.submit(asked)
        await read_all(reader, heard)
    assert heard.error == "the constraints of the request leave no token to choose"
    assert heard.token_ids == [[]]


async def test_what_each_processor_costs_is_told(open_engine: Opener) -> None:
    """One call a token and name, with its seconds; nothing where nobody uses any."""
    calls: dict[str, int] = {}
    seconds: dict[str, float] = {}
    async with open_engine(processors=FACTORIES) as reader:
        heard = [reader.submit(spec("temperature", "sleeping", tokens=4)), reader.submit(spec("temperature"))]
        while reader.live:
            for use in (await reader.read_step()).processors:
                calls[use.name] = calls.get(use.name, 0) + use.tokens
                seconds[use.name] = seconds.get(use.name, 0.0) + use.seconds
        reader.submit(spec())
        while reader.live:
            assert (await reader.read_step()).processors == ()
    assert all(one.error is None for one in heard)
    assert calls == {"temperature": 28, "sleeping": 4}
    assert seconds["sleeping"] >= 4 * 0.05


async def test_the_models_own_fault_is_no_processors(
    open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that the model broke is not blamed on who had it, whether he was in time or late."""
    choose = Chooser.choose

    def poisoned(self: Chooser, logits: Any, sequences: list[Any]) -> list[Any]:
        for row, sequence in enumerate(sequences):
            if sequence.output_tokens == 2:
                logits[row] = float("nan")
        return choose(self, logits, sequences)

    monkeypatch.setattr(Chooser, "choose", poisoned)
    async with open_engine(processors=FACTORIES) as reader:
        heard = [reader.submit(spec(name, tokens=6)) for name in ("temperature", "sleeping", "nan")]
        await read_all(reader, *heard)
    told = [one.error for one in heard[:2]]
    assert told == ["the model gave logits that are not finite"] * 2
    assert heard[2].error == "logits processor 'nan' wrote NaN or +inf"


class LoopingToMake:
    """Its factory never comes back; `begun` and `ended` say when somebody is in it, and no more."""

    begun = threading.Event()
    ended = threading.Event()

    def __init__(self) -> None:
        try:
            while True:
                LoopingToMake.begun.set()
        finally:
            LoopingToMake.ended.set()

    def __call__(self, input_ids: Any, logits: Any) -> None:
        """Never called."""


@pytest.fixture
def looping_to_make() -> dict[str, Any]:
    LoopingToMake.begun, LoopingToMake.ended = threading.Event(), threading.Event()
    return {"looping": LoopingToMake, "temperature": Temperature}


async def test_an_abort_during_the_prompt_ends_what_is_being_made(
    open_engine: Opener, looping_to_make: dict[str, Any]
) -> None:
    """No row was ever given to the processor: its factory is interrupted all the same."""
    async with open_engine(processors=looping_to_make, step_tokens=9) as reader:
        heard = reader.submit(spec("looping", prompt=tuple(range(200))))
        await reader.read_step()
        assert LoopingToMake.begun.wait(10.0)
        reader.engine.abort(heard.engine_id)
        await read_all(reader, heard)
        assert LoopingToMake.ended.wait(10.0)
        await reader.complete(spec("temperature"))


async def test_a_choice_that_fails_ends_what_is_made_for_the_others(
    open_engine: Opener, looping_to_make: dict[str, Any]
) -> None:
    """The second choice cannot even begin; the factory of the first is interrupted."""

    class Panicking:
        states = 0

        def new_state(self) -> object:
            self.states += 1
            if self.states == 2:
                LoopingToMake.begun.wait(10.0)
                raise BaseException("a panic")  # noqa: TRY002 - as the library's own
            return ScriptedGrammar().new_state()

    guided = Guided(kind=GuidedKind.REGEX, constraint="a", grammar=Panicking())
    async with open_engine(processors=looping_to_make) as reader:
        heard = reader.submit(spec("looping", n=2, guided=guided))
        await read_all(reader, heard)
        assert heard.error == "the grammar failed (BaseException)"
        assert LoopingToMake.ended.wait(10.0)


async def test_what_is_being_made_ends_with_the_engine(
    open_engine: Opener, looping_to_make: dict[str, Any]
) -> None:
    """A stop leaves no loop behind."""
    async with open_engine(processors=looping_to_make) as reader:
        reader.submit(spec("looping"))
        await reader.read_step()
        assert LoopingToMake.begun.wait(10.0)
    assert LoopingToMake.ended.wait(10.0)


async def test_a_grammar_that_cannot_be_followed_fails_its_own_request(open_engine: Opener) -> None:
    """A panic of its library when a request begins is no Exception, and still no end of the engine."""

    class Panicking:
        def new_state(self) -> object:
            raise BaseException("a panic")  # noqa: TRY002 - as the library's own

    guided = Guided(kind=GuidedKind.REGEX, constraint="a", grammar=Panicking())
    async with open_engine() as reader:
        heard = reader.submit(spec(n=2, guided=guided))
        await read_all(reader, heard)
        assert heard.error == "the grammar failed (BaseException)"
        await reader.complete(spec())
