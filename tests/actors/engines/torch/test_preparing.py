"""Before a spec is submitted: what is prepared, refused, kept; what happens when it takes too long."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn

import llguidance
import pytest

from actors.engines import limited_work, processor_trials
from actors.engines.grammars import constraint_trials, vocabulary
from actors.engines.grammars.limits import MOST_STUCK
from actors.engines.grammars.vocabulary import NoTokenizer
from actors.engines.impatience import ForeignFailure
from actors.engines.torch.config import TorchConfig
from actors.engines.torch.grammars import compiler
from actors.engines.torch.preparing import TorchPreparer
from actors.engines.tried_processors import TriedProcessors
from protocols.bounds import Bound
from protocols.errors import EngineShutdown, InternalError, InvalidRequest, Overloaded
from protocols.spec import GenerationSpec, Guided, GuidedKind, ProcessorEntry, StopRules
from tests.actors.engines.grammars.deadly import GREEDY_LARK, OVERFLOWING
from tests.actors.engines.grammars.world import write_tokenizer
from tests.actors.engines.torch.tiny_models import VOCAB_SIZE
from tests.doubles.listeners import RecordingTelemetry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio


def spec(
    kind: str | None = "regex", constraint: Any = "a+", *, processors: tuple[ProcessorEntry, ...] = ()
) -> GenerationSpec:
    guided = None if kind is None else Guided(kind=GuidedKind(kind), constraint=constraint)
    return GenerationSpec(prompt=(1,), stop=StopRules(max_tokens=4), guided=guided, processors=processors)


class Panic(BaseException):
    """What a library in another language raises where nobody expected it."""


class Friendly:
    """A processor that can be made."""

    def __init__(self, strength: float = 1.0) -> None:
        self.strength = strength


class Picky:
    """A processor that takes nothing, and says so at length."""

    def __init__(self, reason: str) -> None:
        raises = {"value": ValueError, "key": KeyError, "exit": SystemExit}
        raise raises[reason](f"the {reason} is wrong: {'x' * 500}\nand the secret of the operator")


class Counted:
    """A processor that is counted when it is made."""

    made = 0

    def __init__(self, strength: Any = None) -> None:
        Counted.made += 1


class Sleeper:
    """A processor that takes its time to be made."""

    released = threading.Event()

    def __init__(self) -> None:
        self.released.wait()


@pytest.fixture
def asleep() -> Iterator[None]:
    Sleeper.released.clear()
    yield
    Sleeper.released.set()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tokenizer(tmp_path / "model")


FACTORIES = {"friendly": Friendly, "sleeper": Sleeper, "picky": Picky, "counted": Counted}


@pytest.fixture
def told() -> RecordingTelemetry:
    """What was said about bounds."""
    return RecordingTelemetry()


@pytest.fixture
def opened(folder: Path, told: RecordingTelemetry) -> Iterator[TorchPreparer]:
    """A preparer whose engine has started."""
    preparer = TorchPreparer(
        TorchConfig(model_path=folder, processors=FACTORIES, on_bound=told.bound_reached)
    )
    preparer.open(VOCAB_SIZE)
    yield preparer
    preparer.close()


async def test_a_constraint_is_compiled_once(opened: TorchPreparer) -> None:
    """What was prepared is found from then on, without a thread, by any spec with an equal constraint."""
    preparer = opened
    assert preparer.find(spec()) is None
    prepared = await preparer.prepare(spec())
    again = preparer.find(spec())
    assert again is not None
    assert again.guided == prepared.guided
    assert again.guided is not None
    assert again.guided.grammar is not None


async def test_processors_are_tried_once(opened: TorchPreparer) -> None:
    """With equal options they are found from then on, also beside a constraint that is known."""
    options = {"strength": {"b": 1, "a": [True, 1.0]}}
    asked = spec(processors=(ProcessorEntry(name="counted", options=options),))
    assert opened.find(asked) is None
    made = Counted.made
    prepared = await opened.prepare(asked)
    assert opened.find(asked) == prepared
    assert opened.find(spec(None, processors=asked.processors)) == spec(None, processors=asked.processors)
    assert Counted.made == made + 1
    for other in ({"strength": {"b": 1, "a": [1, 1.0]}}, {"strength": "x" * 3_000}, {}):
        wanted = spec(None, processors=(ProcessorEntry(name="counted", options=other),))
        assert opened.find(wanted) is None
        assert await opened.prepare(wanted) == wanted
    assert opened.find(spec(None, processors=(ProcessorEntry(name="counted"),))) is not None
    assert Counted.made == made + 4


async def test_options_that_are_refused_are_refused_again(opened: TorchPreparer) -> None:
    """By name, every time; nothing is kept of them."""
    bad = spec(None, processors=(ProcessorEntry(name="friendly", options={"weakness": 2}),))
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="logits-processor:friendly") as refused:
            await opened.prepare(bad)
        assert refused.value.field == "annotations"
        assert opened.find(bad) is None


def test_tried_processors_are_bounded() -> None:
    """The least recently used goes; options that JSON does not have, or long ones, are not kept."""
    told = RecordingTelemetry()
    tried = TriedProcessors(entries=2, on_bound=told.bound_reached)
    entries = [ProcessorEntry(name="a", options={"at": at}) for at in (1, 2, 3, object(), "x" * 2_001)]
    for entry in entries[:2]:
        tried.keep([entry])
    assert tried.has_all(entries[:1])
    assert told.bounds == {}
    tried.keep(entries[2:])
    assert told.bounds == {Bound.TRIED_PROCESSORS: 1}
    assert [tried.has_all([entry]) for entry in entries] == [True, False, True, False, False]
    assert not tried.has_all(entries)
    assert not tried.has_all([ProcessorEntry(name="b", options={"at": 1})])


@pytest.mark.parametrize(
    ("reason", "said"),
    [("value", "ValueError: 'the value is wrong: x"), ("key", "(KeyError)"), ("exit", "(SystemExit)")],
)
async def test_what_a_factory_says(opened: TorchPreparer, reason: str, said: str) -> None:
    """About the options: its first line, shortened; about anything else: its type. The worker lives."""
    with pytest.raises(InvalidRequest) as refused:
        await opened.prepare(
            spec(None, processors=(ProcessorEntry(name="picky", options={"reason": reason}),))
        )
    assert said in refused.value.allowed
    assert len(refused.value.allowed) < 140
    assert "secret" not in str(refused.value)


async def test_a_deadly_constraint(opened: TorchPreparer) -> None:
    """It is refused, the worker lives, nothing is stuck, and the next one is compiled."""
    for _ in range(MOST_STUCK + 1):
        with pytest.raises(InvalidRequest, match="costs less than is allowed"):
            await opened.prepare(spec("json", OVERFLOWING.constraint))
    assert (await opened.prepare(spec())).guided is not None


async def test_no_compiler_works_in_the_worker_for_a_greedy_grammar(
    opened: TorchPreparer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before it was tried: what hangs would hang in a process that can be ended."""
    await opened.prepare(spec())
    with monkeypatch.context() as here:
        here.setattr(llguidance, "LLMatcher", None)
        with pytest.raises(InvalidRequest, match="costs less than is allowed"):
            await opened.prepare(spec("grammar", GREEDY_LARK.constraint))
    assert (await opened.prepare(spec("regex", "b+"))).guided is not None


async def test_what_is_known_needs_no_process(opened: TorchPreparer) -> None:
    """A grammar that was compiled is found although nothing can be tried any more."""
    await opened.prepare(spec())
    opened.close()
    assert opened.find(spec()) is not None
    with pytest.raises(EngineShutdown):
        await opened.prepare(spec())


async def test_a_tokenizer_that_takes_too_long(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guided requests are told at once; those behind them do not wait for it."""
    released = threading.Event()

    def slow(*_: object, **__: object) -> NoReturn:
        released.wait()
        raise NoTokenizer("late")

    monkeypatch.setattr(vocabulary, "read_vocabulary", slow)
    monkeypatch.setattr(constraint_trials, "READY_S", 0.0)
    preparer = TorchPreparer(TorchConfig(model_path=folder))
    preparer.open(VOCAB_SIZE)
    with pytest.raises(Overloaded, match="the tokenizer is still being read"):
        await preparer.prepare(spec())
    released.set()
    preparer.close()


async def test_a_constraint_that_is_too_long_is_not_found(opened: TorchPreparer) -> None:
    """The event loop's look-up refuses nothing; preparing does, with the reason."""
    preparer = opened
    long = spec("regex", "a" * 70_000)
    assert preparer.find(long) is None
    with pytest.raises(InvalidRequest, match="at most 65536 bytes"):
        await preparer.prepare(long)


async def test_a_model_without_a_tokenizer(tmp_path: Path) -> None:
    """Guided requests are refused with the reason; all others are prepared."""
    preparer = TorchPreparer(TorchConfig(model_path=tmp_path))
    preparer.open(VOCAB_SIZE)
    with pytest.raises(InvalidRequest, match="nothing: the model folder has no tokenizer") as refused:
        await preparer.prepare(spec())
    assert refused.value.field == "sampling_options.guided_decoding.regex"
    assert await preparer.prepare(spec(None)) == spec(None)


@pytest.mark.usefixtures("asleep")
async def test_what_takes_too_long_is_refused(
    opened: TorchPreparer, told: RecordingTelemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is refused by name, and the next one does not wait for the thread that is stuck."""
    preparer = opened
    await preparer.prepare(spec())
    monkeypatch.setattr(limited_work, "PREPARE_S", 0.2)
    monkeypatch.setattr(processor_trials, "PREPARE_S", 0.2)
    slow = spec(None, processors=(ProcessorEntry(name="sleeper"),))
    with pytest.raises(InvalidRequest, match=r"logits-processor:sleeper.*within 0.2 s"):
        await preparer.prepare(slow)
    assert told.bounds == {Bound.PREPARING_TIME: 1}
    monkeypatch.setattr(limited_work, "PREPARE_S", 15.0)
    assert (await preparer.prepare(spec("regex", "b"))).guided is not None


@pytest.mark.usefixtures("asleep")
async def test_stuck_threads_are_bounded(opened: TorchPreparer, monkeypatch: pytest.MonkeyPatch) -> None:
    """With too many of them processors are turned away as an overload; grammars are not held up."""
    preparer = opened
    await preparer.prepare(spec())
    monkeypatch.setattr(limited_work, "PREPARE_S", 0.05)
    for _ in range(MOST_STUCK):
        with pytest.raises(InvalidRequest):
            await preparer.prepare(spec(None, processors=(ProcessorEntry(name="sleeper"),)))
    with pytest.raises(Overloaded) as overloaded:
        await preparer.prepare(spec(None, processors=(ProcessorEntry(name="friendly"),)))
    assert overloaded.value.reason == "preparing_full"
    assert preparer.find(spec()) is not None
    monkeypatch.setattr(limited_work, "PREPARE_S", 15.0)
    assert (await preparer.prepare(spec("regex", "b"))).guided is not None


async def test_a_panic_fails_one_request(opened: TorchPreparer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What llguidance throws that is no exception ends one preparation; the next one works."""
    preparer = opened
    await preparer.prepare(spec())

    def panic(*_: object) -> None:
        raise Panic

    with monkeypatch.context() as patched:
        patched.setattr(compiler, "compile_grammar", panic)
        with pytest.raises(ForeignFailure):
            await preparer.prepare(spec("regex", "b"))
    assert (await preparer.prepare(spec("regex", "b"))).guided is not None


async def test_before_the_start_and_after_the_end(folder: Path) -> None:
    """Before `open` it is our own fault, after `close` the engine is gone; a late `open` does nothing."""
    before = set(threading.enumerate())
    preparer = TorchPreparer(TorchConfig(model_path=folder))
    with pytest.raises(InternalError):
        await preparer.prepare(spec())
    preparer.close()
    preparer.open(VOCAB_SIZE)
    preparer.close()
    with pytest.raises(EngineShutdown):
        await preparer.prepare(spec())
    assert not set(threading.enumerate()) - before


async def test_the_loop_goes_on_while_a_grammar_is_compiled(opened: TorchPreparer) -> None:
    """A heavy constraint is tried beside the event loop, which turns meanwhile."""
    preparer = opened
    await preparer.prepare(spec())
    turns, worst_s = 0, 0.0
    preparation = asyncio.ensure_future(preparer.prepare(spec("regex", "((x{100}){100}){100}")))
    while not preparation.done():
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        turns, worst_s = turns + 1, max(worst_s, time.perf_counter() - before)
    with pytest.raises(InvalidRequest, match="a constraint that costs less"):
        await preparation
    assert turns > 20
    assert worst_s < 1.0
