"""Before a spec is submitted: what is prepared, refused, kept; what happens when it takes too long."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.torch import preparing
from actors.engines.torch.config import TorchConfig
from actors.engines.torch.grammars import compiler
from actors.engines.torch.grammars.limits import MOST_STUCK
from actors.engines.torch.impatience import ForeignFailure
from actors.engines.torch.preparing import TorchPreparer
from protocols.errors import EngineShutdown, InternalError, InvalidRequest, Overloaded
from protocols.spec import GenerationSpec, Guided, GuidedKind, ProcessorEntry, StopRules
from tests.actors.engines.torch.grammars.world import write_tokenizer
from tests.actors.engines.torch.tiny_models import VOCAB_SIZE

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


def opened(folder: Path) -> TorchPreparer:
    preparer = TorchPreparer(
        TorchConfig(model_path=folder, processors={"friendly": Friendly, "sleeper": Sleeper})
    )
    preparer.open(VOCAB_SIZE)
    return preparer


async def test_a_constraint_is_compiled_once(folder: Path) -> None:
    """What was prepared is found from then on, without a thread, by any spec with an equal constraint."""
    preparer = opened(folder)
    assert preparer.find(spec()) is None
    prepared = await preparer.prepare(spec())
    again = preparer.find(spec())
    assert again is not None
    assert again.guided == prepared.guided
    assert again.guided is not None
    assert again.guided.grammar is not None


async def test_processors_are_tried_every_time(folder: Path) -> None:
    """A spec with processors is never found: their options are tried, and refused by name."""
    preparer = opened(folder)
    good = spec(processors=(ProcessorEntry(name="friendly", options={"strength": 2}),))
    assert await preparer.prepare(good) == await preparer.prepare(good)
    assert preparer.find(good) is None
    bad = spec(None, processors=(ProcessorEntry(name="friendly", options={"weakness": 2}),))
    with pytest.raises(InvalidRequest, match="logits-processor:friendly") as refused:
        await preparer.prepare(bad)
    assert refused.value.field == "annotations"


async def test_a_constraint_that_is_too_long_is_not_found(folder: Path) -> None:
    """The event loop's look-up refuses nothing; preparing does, with the reason."""
    preparer = opened(folder)
    long = spec("regex", "a" * 70_000)
    assert preparer.find(long) is None
    with pytest.raises(InvalidRequest, match="at most 65536 bytes"):
        await preparer.prepare(long)


async def test_a_model_without_a_tokenizer(tmp_path: Path) -> None:
    """Guided requests are refused with the reason; all others are prepared."""
    preparer = opened(tmp_path)
    with pytest.raises(InvalidRequest, match="nothing: the model folder has no tokenizer") as refused:
        await preparer.prepare(spec())
    assert refused.value.field == "sampling_options.guided_decoding.regex"
    assert await preparer.prepare(spec(None)) == spec(None)


@pytest.mark.usefixtures("asleep")
async def test_what_takes_too_long_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is refused by name, and the next one does not wait for the thread that is stuck."""
    preparer = opened(folder)
    await preparer.prepare(spec())
    monkeypatch.setattr(preparing, "PREPARE_S", 0.2)
    slow = spec(None, processors=(ProcessorEntry(name="sleeper"),))
    with pytest.raises(InvalidRequest, match=r"logits-processor:sleeper.*within 0.2 s"):
        await preparer.prepare(slow)
    with pytest.raises(InvalidRequest, match=r"guided_decoding.regex.*within 0.2 s"):
        await preparer.prepare(spec(processors=(ProcessorEntry(name="sleeper"),)))
    monkeypatch.setattr(preparing, "PREPARE_S", 15.0)
    assert (await preparer.prepare(spec("regex", "b"))).guided is not None


@pytest.mark.usefixtures("asleep")
async def test_stuck_threads_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With too many of them requests are turned away as an overload; what is known still goes through."""
    preparer = opened(folder)
    await preparer.prepare(spec())
    monkeypatch.setattr(preparing, "PREPARE_S", 0.05)
    for _ in range(MOST_STUCK):
        with pytest.raises(InvalidRequest):
            await preparer.prepare(spec(None, processors=(ProcessorEntry(name="sleeper"),)))
    with pytest.raises(Overloaded) as overloaded:
        await preparer.prepare(spec("regex", "b"))
    assert overloaded.value.reason == "preparing_full"
    assert preparer.find(spec()) is not None


async def test_a_panic_fails_one_request(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What llguidance throws that is no exception ends one preparation; the next one works."""
    preparer = opened(folder)
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
    preparer = TorchPreparer(TorchConfig(model_path=folder))
    with pytest.raises(InternalError):
        await preparer.prepare(spec())
    preparer.close()
    preparer.open(VOCAB_SIZE)
    preparer.close()
    with pytest.raises(EngineShutdown):
        await preparer.prepare(spec())
    assert not [thread for thread in threading.enumerate() if thread.name == "torch-tokenizer"]


async def test_the_loop_goes_on_while_a_grammar_is_compiled(folder: Path) -> None:
    """A heavy constraint is tried beside the event loop, which turns meanwhile."""
    preparer = opened(folder)
    await preparer.prepare(spec())
    turns, worst_s = 0, 0.0
    preparation = asyncio.ensure_future(preparer.prepare(spec("regex", "((x{100}){100}){100}")))
    while not preparation.done():
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        turns, worst_s = turns + 1, max(worst_s, time.perf_counter() - before)
    with pytest.raises(InvalidRequest, match="costs less to follow"):
        await preparation
    assert turns > 20
    assert worst_s < 1.0
