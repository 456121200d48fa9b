"""Before a spec is submitted to TensorRT-LLM: what is tried, refused, read and kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import llguidance
import pytest

from actors.engines.trtllm.config import TrtllmConfig
from actors.engines.trtllm.constraints.guiding import Backend, Guide, Option
from actors.engines.trtllm.preparing import TrtllmPreparer
from protocols.bounds import Bound
from protocols.errors import EngineShutdown, EngineStartError, InternalError, InvalidRequest
from protocols.spec import GenerationSpec, Guided, GuidedKind, ProcessorEntry, StopRules
from tests.actors.engines.grammars.deadly import ENDLESS_GBNF, ENDLESS_LARK, OVERFLOWING
from tests.actors.engines.grammars.world import write_tokenizer
from tests.actors.engines.torch.tiny_models import VOCAB_SIZE
from tests.doubles.listeners import RecordingTelemetry
from tests.doubles.xgrammar_path import KINDS, xgrammar_on_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.anyio

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tokenizer(tmp_path / "model")


@pytest.fixture
def told() -> RecordingTelemetry:
    """What was said about bounds."""
    return RecordingTelemetry()


class Friendly:
    """A processor that can be made."""

    def __init__(self, strength: float = 1.0) -> None:
        self.strength = strength


def config(folder: Path, backend: str | None, told: RecordingTelemetry | None = None) -> TrtllmConfig:
    return TrtllmConfig(
        model_path=folder,
        vocab_size=VOCAB_SIZE,
        context_length=64,
        arguments={} if backend is None else {"guided_decoding_backend": backend},
        processors={"friendly": Friendly},
        on_bound=(told or RecordingTelemetry()).bound_reached,
    )


@pytest.fixture(params=["llguidance", *KINDS])
def opened(
    request: pytest.FixtureRequest, folder: Path, told: RecordingTelemetry
) -> Iterator[TrtllmPreparer]:
    """A preparer whose engine has started, with either back-end."""
    backend = request.param if request.param == "llguidance" else "xgrammar"
    with xgrammar_on_path(request.param):
        preparer = TrtllmPreparer(config(folder, backend, told))
        preparer.open()
        yield preparer
        preparer.close()


def spec(kind: str | None = "regex", constraint: Any = "a+", **options: Any) -> GenerationSpec:
    guided = None if kind is None else Guided(kind=GuidedKind(kind), constraint=constraint)
    return GenerationSpec(prompt=(1,), stop=StopRules(max_tokens=4), guided=guided, **options)


async def test_a_constraint_is_tried_once(opened: TrtllmPreparer) -> None:
    """What was prepared is found from then on, in the form that the engine takes."""
    assert opened.find(spec("json", SCHEMA)) is None
    prepared = await opened.prepare(spec("json", SCHEMA))
    assert prepared.guided is not None
    text = '{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}'
    assert prepared.guided.grammar == Guide(Option.JSON, text)
    again = opened.find(spec("json", SCHEMA))
    assert again is not None
    assert again.guided == prepared.guided


@pytest.mark.parametrize("first", [None, ("json", SCHEMA)])
@pytest.mark.parametrize(
    ("kind", "constraint"), [("json", {"type": "objekt"}), ("regex", "[a-"), ("json", "{not json")]
)
async def test_a_bad_constraint(
    opened: TrtllmPreparer, first: tuple[str, Any] | None, kind: str, constraint: Any
) -> None:
    """It is refused by name, whatever was good before it; the next one and plain requests are served."""
    if first is not None:
        await opened.prepare(spec(*first))
    for _ in range(2):
        with pytest.raises(InvalidRequest) as refused:
            await opened.prepare(spec(kind, constraint))
        assert refused.value.field == f"sampling_options.guided_decoding.{kind}"
        assert opened.find(spec(kind, constraint)) is None
    assert opened.find(spec(None)) == spec(None)
    assert (await opened.prepare(spec())).guided is not None


async def test_a_deadly_constraint(opened: TrtllmPreparer, told: RecordingTelemetry) -> None:
    """It ends the process for trials and not the worker; the next constraint is tried by the next one."""
    with pytest.raises(InvalidRequest, match="costs less than is allowed"):
        await opened.prepare(spec("json", OVERFLOWING.constraint))
    assert told.bounds == {Bound.CONSTRAINT_COST: 1}
    assert (await opened.prepare(spec())).guided is not None


async def test_no_compiler_works_in_the_worker_for_an_endless_grammar(
    opened: TrtllmPreparer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither before it was tried nor after: what hangs would hang in a process that can be ended."""
    await opened.prepare(spec())
    monkeypatch.setattr(llguidance, "LLMatcher", None)
    hostile = ENDLESS_LARK if opened._backend is Backend.LLGUIDANCE else ENDLESS_GBNF
    with pytest.raises(InvalidRequest, match=r"more never does|costs less than is allowed"):
        await opened.prepare(spec("grammar", hostile.constraint))
    assert (await opened.prepare(spec("regex", "b+"))).guided is not None


async def test_processors_are_tried(opened: TrtllmPreparer) -> None:
    """With options that a factory takes they are found from then on; with others they are refused by name."""
    good = spec(None, processors=(ProcessorEntry(name="friendly", options={"strength": 2}),))
    assert opened.find(good) is None
    assert await opened.prepare(good) == good
    assert opened.find(good) == good
    bad = spec(None, processors=(ProcessorEntry(name="friendly", options={"weakness": 2}),))
    with pytest.raises(InvalidRequest, match="logits-processor:friendly"):
        await opened.prepare(bad)


async def test_a_hand_off_is_read_at_once(folder: Path) -> None:
    """Found or prepared, the spec has the engine's form of it; one that cannot be read is refused."""

    def decode(handoff: Mapping[str, Any]) -> object:
        if "state" not in handoff:
            raise InvalidRequest("prefill_result.disaggregated_params", handoff, "a state")
        return ("read", handoff["state"])

    preparer = TrtllmPreparer(config(folder, None), decode)
    preparer.open()
    found = preparer.find(spec(None, handoff={"state": 1}))
    assert found is not None
    assert found.handoff == ("read", 1)
    tried = (ProcessorEntry(name="friendly"),)
    asked = spec(None, handoff={"state": 2}, processors=tried)
    assert preparer.find(asked) is None
    assert (await preparer.prepare(asked)).handoff == ("read", 2)
    with pytest.raises(InvalidRequest, match=r"prefill_result\.disaggregated_params"):
        preparer.find(spec(None, handoff={}))


async def test_without_a_back_end(folder: Path) -> None:
    """No tokenizer is read and no process started; a constraint would be our own fault."""
    preparer = TrtllmPreparer(config(folder / "missing", None))
    preparer.open()
    assert preparer.find(spec(None)) == spec(None)
    with pytest.raises(InternalError):
        await preparer.prepare(spec())
    preparer.close()


async def test_a_model_without_a_tokenizer(tmp_path: Path) -> None:
    """Guided requests are refused with the reason; all others are prepared."""
    preparer = TrtllmPreparer(config(tmp_path, "llguidance"))
    preparer.open()
    with pytest.raises(InvalidRequest, match="nothing: the model folder has no tokenizer"):
        await preparer.prepare(spec())
    assert await preparer.prepare(spec(None)) == spec(None)
    preparer.close()


async def test_the_engine_s_own_tokenizer(folder: Path, tmp_path: Path) -> None:
    """Where TensorRT-LLM is told another one than the model's, constraints are tried with that one."""
    arguments = {"guided_decoding_backend": "llguidance", "tokenizer": str(folder)}
    preparer = TrtllmPreparer(
        TrtllmConfig(model_path=tmp_path, vocab_size=VOCAB_SIZE, context_length=64, arguments=arguments)
    )
    preparer.open()
    assert (await preparer.prepare(spec())).guided is not None
    preparer.close()


async def test_before_the_start_and_after_the_end(folder: Path) -> None:
    """Before `open` it is our own fault, after `close` the engine is gone; a late `open` does nothing."""
    preparer = TrtllmPreparer(config(folder, "llguidance"))
    with pytest.raises(InternalError):
        await preparer.prepare(spec())
    preparer.close()
    preparer.open()
    with pytest.raises(EngineShutdown):
        await preparer.prepare(spec())


def test_a_back_end_that_nobody_knows(folder: Path) -> None:
    """It stops the start."""
    with pytest.raises(EngineStartError, match="guided_decoding_backend"):
        TrtllmPreparer(config(folder, "outlines"))
