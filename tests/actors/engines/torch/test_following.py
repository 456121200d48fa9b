"""Grammars follow tokens beside the engine's thread: told at once, ended in time, noted exactly once."""

from __future__ import annotations

import threading
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.torch import lanes, steering
from actors.engines.torch.grammars.matcher import GrammarState
from actors.engines.torch.lanes import TURN_S, Turn
from protocols.spec import GenerationSpec, Guided, GuidedKind, ProcessorEntry, Sampling, StopRules
from protocols.steps import FinishReason
from tests.actors.engines.torch import tiny_models
from tests.actors.engines.torch.scripted_grammars import ScriptedGrammar, Word
from tests.doubles.threads import join_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.actors.engines.torch.conftest import Opener
    from tests.conformance.reader import EngineReader, Heard

pytestmark = pytest.mark.anyio


@pytest.fixture
def word() -> Iterator[Callable[[bool | BaseException], Word]]:
    """Words that are given at the end of the test if not before; then the lane's threads end."""
    made: list[Word] = []

    def make(says: bool | BaseException) -> Word:
        made.append(Word(says))
        return made[-1]

    yield make
    for one in made:
        one.give()
    join_threads("torch-masks")


def spec(grammar: ScriptedGrammar | None = None, tokens: int = 12, **fields: Any) -> GenerationSpec:
    settings: dict[str, Any] = {
        "prompt": (5, 6, 7),
        "stop": StopRules(max_tokens=tokens),
        "sampling": Sampling(temperature=1.0, seed=5),
        "guided": None if grammar is None else grammar.guided,
        **fields,
    }
    return GenerationSpec(**settings)


async def read_to(reader: EngineReader, heard: Heard, tokens: int) -> None:
    """Until it has said so many, and a neighbour who began then has said all he had to."""
    await reader.read_until(lambda: len(heard.token_ids[0]) == tokens)
    neighbour = reader.submit(spec(prompt=(9, 9, 9)))
    await reader.read_to_end(neighbour)
    assert len(heard.token_ids[0]) == tokens
    assert not heard.is_ended


async def test_a_step_does_not_wait_for_a_grammar_to_note_its_token(
    open_engine: Opener, word: Callable[..., Word]
) -> None:
    """The token is told and neighbours go on; then the answer does, as if nothing had been."""
    say = word(False)
    grammar = ScriptedGrammar({3: say})
    async with open_engine() as reader:
        plain = await reader.complete(spec())
        heard = reader.submit(spec(grammar))
        await read_to(reader, heard, 3)
        say.give()
        await reader.read_to_end(heard)
    assert heard.tokens == plain.tokens
    assert heard.deltas == 12
    assert grammar.noted == [plain.tokens[:11]]
    assert grammar.states[0].masks == 12


async def test_who_turns_out_to_be_complete_ends_with_what_was_told(
    open_engine: Opener, word: Callable[..., Word]
) -> None:
    """An end without a token, and nothing was chosen behind it: a processor was called once a token."""
    say = word(True)
    grammar = ScriptedGrammar({3: say})
    calls: list[int] = []

    def counting() -> Any:
        return lambda input_ids, logits: calls.append(len(input_ids))

    async with open_engine(processors={"counting": counting}) as reader:
        plain = await reader.complete(spec())
        heard = reader.submit(spec(grammar, processors=(ProcessorEntry(name="counting"),)))
        await read_to(reader, heard, 3)
        say.give()
        await reader.read_to_end(heard)
    assert heard.tokens == plain.tokens[:3]
    assert (heard.deltas, heard.reason) == (4, FinishReason.STOP)
    assert calls == [3, 4, 5]
    assert grammar.noted == [plain.tokens[:3]]


async def test_who_turns_out_to_have_failed_fails(open_engine: Opener, word: Callable[..., Word]) -> None:
    """After the token was told, and alone."""
    say = word(ValueError("with a secret"))
    async with open_engine() as reader:
        heard = reader.submit(spec(ScriptedGrammar({2: say}), n=2))
        await read_to(reader, heard, 2)
        say.give()
        await reader.read_until(lambda: heard.is_ended)
        await reader.complete(spec())
    assert heard.error == "the grammar failed (ValueError)"


async def test_who_is_complete_in_time_ends_with_the_token(
    open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same delta, as ever; what its stop rules say comes first, and the grammar is not asked then."""
    monkeypatch.setattr(lanes, "TURN_S", 60.0)
    async with open_engine() as reader:
        plain = await reader.complete(spec())
        grammar = ScriptedGrammar({3: lambda: True}, {12: lambda: True})
        heard = await reader.complete(spec(grammar, n=2))
    assert heard.token_ids[0] == plain.tokens[:3]
    assert heard.deltas == 3 + 12
    assert heard.reasons == {0: FinishReason.STOP, 1: FinishReason.LENGTH}
    assert [len(noted) for noted in grammar.noted] == [3, 11]


async def test_a_grammar_may_end_before_min_tokens(open_engine: Opener) -> None:
    """There is nothing that could come next."""
    grammar = ScriptedGrammar({2: lambda: True})
    async with open_engine() as reader:
        heard = await reader.complete(spec(grammar, stop=StopRules(max_tokens=9, min_tokens=5)))
    assert (len(heard.tokens), heard.reason) == (2, FinishReason.STOP)


async def test_the_last_of_the_choices_ends_the_request(
    open_engine: Opener, word: Callable[..., Word]
) -> None:
    """Two are late with their ends: the request ends with the second of them, wherever that is."""
    first, second = word(True), word(True)
    grammar = ScriptedGrammar({2: second}, {4: first}, {})
    async with open_engine() as reader:
        heard = reader.submit(spec(grammar, n=3))
        await reader.read_until(lambda: [len(said) for said in heard.token_ids] == [2, 4, 12])
        assert heard.reasons == {2: FinishReason.LENGTH}
        first.give()
        await reader.read_until(lambda: 1 in heard.reasons)
        assert not heard.is_ended
        second.give()
        await reader.read_to_end(heard)
    assert heard.reasons == {0: FinishReason.STOP, 1: FinishReason.STOP, 2: FinishReason.LENGTH}
    assert [len(said) for said in heard.token_ids] == [2, 4, 12]


async def test_an_abort_need_not_wait_for_the_grammar(open_engine: Opener, word: Callable[..., Word]) -> None:
    """It is confirmed while the grammar hangs, and the slot and all blocks are free."""
    async with open_engine(max_num_seqs=1) as reader:
        heard = reader.submit(spec(ScriptedGrammar({2: word(True)})))
        await reader.read_until(lambda: len(heard.tokens) == 2)
        reader.engine.abort(heard.engine_id)
        await reader.read_until(lambda: heard.is_ended)
        assert heard.last_reason is FinishReason.CANCELLED
        await reader.complete(spec())


async def test_a_pause_holds_who_is_late(open_engine: Opener, word: Callable[..., Word]) -> None:
    """Once the grammar is back nothing is said before the resume; the answer is what it would have been."""
    say = word(False)
    async with open_engine() as reader:
        plain = await reader.complete(spec())
        heard = reader.submit(spec(ScriptedGrammar({3: say})))
        await reader.read_until(lambda: len(heard.tokens) == 3)
        reader.engine.pause(heard.engine_id)
        say.give()
        await read_to(reader, heard, 3)
        reader.engine.resume(heard.engine_id)
        await reader.read_to_end(heard)
    assert heard.tokens == plain.tokens


async def test_who_is_late_may_lose_his_blocks(open_engine: Opener) -> None:
    """Preempted while its grammar takes its time: the same answer, every token noted once."""
    prompts = tiny_models.prompts((17, 29, 23))
    # Each comes back when its token was told, so always late.
    words = [{number: Word(False) for number in range(1, 16)} for _ in prompts]
    grammars = [ScriptedGrammar(own) for own in words]
    async with open_engine() as reader:
        expected = [(await reader.complete(spec(prompt=prompt, tokens=16))).tokens for prompt in prompts]
    async with open_engine(kv_pool_tokens=96, max_seq_len=96) as reader:
        heard = [
            reader.submit(spec(grammar, prompt=prompt, tokens=16))
            for grammar, prompt in zip(grammars, prompts, strict=True)
        ]
        while not all(one.is_ended for one in heard):
            for one, own in zip(heard, words, strict=True):
                if (told := own.get(len(one.tokens))) is not None:
                    told.give()
            await reader.read_step()
    assert [one.tokens for one in heard] == expected
    assert [grammar.noted for grammar in grammars] == [[tokens[:-1]] for tokens in expected]


async def test_a_grammar_that_never_comes_back_is_given_up(
    open_engine: Opener, word: Callable[..., Word], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its request fails; meanwhile the engine makes steps, so that nobody takes it for hung."""
    monkeypatch.setattr(steering, "GIVE_UP_S", 0.6)
    async with open_engine() as reader:
        heard = reader.submit(spec(ScriptedGrammar({1: word(True)})))
        await reader.read_until(lambda: len(heard.tokens) == 1)
        assert not (await reader.read_step()).deltas
        await reader.read_until(lambda: heard.is_ended)
        await reader.complete(spec())
    assert heard.error == "the grammar did not return within 0.6 s"


async def test_a_wide_schema_with_many_choices_never_works_in_the_engines_thread(
    open_engine: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every token but a length's last is noted, once, and on a side lane, whatever that takes."""
    from actors.engines.grammars.vocabulary import read_vocabulary
    from tests.actors.engines.grammars.world import Guide, write_tokenizer

    where = Counter[str]()
    accept = GrammarState.accept

    def watched(self: GrammarState, token: int) -> bool:
        where[threading.current_thread().name] += 1
        return accept(self, token)

    monkeypatch.setattr(GrammarState, "accept", watched)
    wide = {"type": "object", "properties": {f"p{place}": {"type": "integer"} for place in range(500)}}
    guide = Guide(read_vocabulary(write_tokenizer(tmp_path / "model"), tiny_models.VOCAB_SIZE))
    guided = Guided(kind=GuidedKind.JSON, constraint=wide, grammar=guide.compile("json", wide))
    async with open_engine(max_num_seqs=64) as reader:
        heard = await reader.complete(spec(guided=guided, n=64))
    cut = sum(reason is FinishReason.LENGTH for reason in heard.reasons.values())
    assert where == {"torch-masks": sum(len(said) for said in heard.token_ids) - cut}
    assert cut > 0


def test_a_step_has_one_turn_for_all_its_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one wait has used the next one does not have; another step begins with a whole turn."""
    now = SimpleNamespace(s=100.0)
    monkeypatch.setattr(lanes, "time", SimpleNamespace(monotonic=lambda: now.s))
    turn = Turn()
    left: list[float] = []
    for used in (0.75 * TURN_S, 0.5 * TURN_S, 0.0):
        with turn.waiting() as until_s:
            left.append(until_s - now.s)
            now.s += used
    turn.begin()
    with turn.waiting() as until_s:
        left.append(until_s - now.s)
    assert left == pytest.approx([TURN_S, 0.25 * TURN_S, 0.0, TURN_S])
