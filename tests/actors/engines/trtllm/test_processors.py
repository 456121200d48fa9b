"""Logits processors by TensorRT-LLM's call: what it hands over, what may happen, and what comes back."""

from __future__ import annotations

import copy
import gc
import inspect
import math
import pickle
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from actors.engines.trtllm.processors.factories import EngineProcessor, Factories, NotPicklable, attach
from actors.engines.trtllm.processors.spool import Spool
from actors.engines.trtllm.processors.steersman import _AT_WORK
from protocols.spec import GenerationSpec, Guided, GuidedKind, ProcessorEntry, Search, Stage, StopRules
from protocols.steps import EngineId
from tests.actors.engines.torch.hostile_processors import BROKEN, without_lines
from tests.actors.engines.trtllm.operators_processors import (
    Broken,
    Counting,
    Forcing,
    Keeping,
    Temperature,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ME = EngineId(7)
END = 2
PROMPT = (5, 6, 7)
FACTORIES = Factories.of({each.__name__: each for each in (Broken, Counting, Forcing, Keeping, Temperature)})


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    """In a folder of the test."""
    spool = Spool.make([tmp_path])
    yield spool
    spool.remove()


def spec(*processors: ProcessorEntry, min_tokens: int = 0, **options: Any) -> GenerationSpec:
    options.setdefault(
        "stop", StopRules(max_tokens=40, min_tokens=min_tokens, eos_token_ids=frozenset({END, 9}))
    )
    return GenerationSpec(prompt=PROMPT, processors=processors, **options)


def one(name: str, **options: object) -> ProcessorEntry:
    return ProcessorEntry(name=name, options=options)


def attached(spool: Spool, wanted: GenerationSpec, *, is_overlapped: bool = False) -> EngineProcessor:
    processor = attach(wanted, ME, FACTORIES, spool, is_overlapped=is_overlapped)
    assert processor is not None
    return processor


def logits(*leading: int) -> torch.Tensor:
    return torch.linspace(-4.0, 4.0, 320).expand(*leading, 320).clone()


def ids(output: int = 0) -> list[list[int]]:
    return [[*PROMPT, *range(output)]]


def is_ending(row: torch.Tensor) -> bool:
    """Whether nothing but the end is left to choose, in words that any sampler understands."""
    return bool((row.argmax(-1) == END).all()) and bool(row.isfinite().all())


def test_it_is_called_as_the_library_calls() -> None:
    """By position, with five things, which the library counts before every call."""
    names = list(inspect.signature(EngineProcessor.__call__).parameters)
    assert names == ["self", "req_id", "logits", "token_ids", "stream_ptr", "client_id"]


@pytest.mark.parametrize("leading", [(), (1,), (1, 1), (1, 1, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_it_changes_the_row_in_place(spool: Spool, leading: tuple[int, ...], dtype: torch.dtype) -> None:
    """Whatever the row's shape and type; the processor sees one dimension of float32."""
    changed = logits(*leading).to(dtype)
    assert attached(spool, spec(one("Temperature", temperature=2.0)))(1, changed, ids(), None, None) is None
    assert torch.equal(changed, logits(*leading).to(dtype).float().div(2.0).to(dtype))


def test_processors_follow_each_other_as_the_request_lists_them(spool: Spool) -> None:
    """Each sees what the one before it left; what they cost is told by name."""
    wanted = spec(one("Temperature", temperature=2.0), one("Forcing", token_ids=[300]))
    changed = logits(1, 1)
    attached(spool, wanted)(1, changed, ids(), None)
    assert changed[0, 0, 300] == logits()[300] / 2.0
    report = spool.read(ME)
    assert [(use.name, use.tokens) for use in report.uses] == [("Temperature", 1), ("Forcing", 1)]
    assert all(use.seconds > 0 for use in report.uses)
    assert report.is_heard


def test_a_request_without_processors_has_nothing(spool: Spool) -> None:
    """No object, no file."""
    assert attach(spec(), ME, FACTORIES, spool, is_overlapped=False) is None
    assert list(spool.folder.iterdir()) == []


def test_a_prefill_never_uses_them(spool: Spool) -> None:
    """The token it makes is the model's own; a decode worker begins with the next."""
    wanted = spec(one("Counting"), stage=Stage.PREFILL)
    assert attach(wanted, ME, FACTORIES, spool, is_overlapped=False) is None
    assert list(spool.folder.iterdir()) == []
    decode = attached(spool, spec(one("Counting"), stage=Stage.DECODE))
    for token in range(3):
        changed = logits(1, 1)
        decode(1, changed, ids(1 + token), None)
        assert changed.argmax() == token
    assert spool.read(ME).failure is None


@pytest.mark.parametrize("kind", BROKEN)
def test_every_fault_is_told_by_name_and_ends_the_sequence(spool: Spool, kind: str) -> None:
    """In the words of engine torch; the text of an error is never among them, and nobody is called again."""
    processor = attached(spool, spec(one("Broken", kind=kind), one("Counting")))
    for call in range(3):
        changed = logits(1, 1)
        processor(1, changed, ids(call), None)
        assert is_ending(changed)
    report = spool.read(ME)
    assert without_lines(report.failure) == f"logits processor 'Broken' {BROKEN[kind][1]}"
    assert sum(use.tokens for use in report.uses) <= 1


def test_several_beams_are_refused_by_name(spool: Spool) -> None:
    """In the logits or in the ids."""
    for number, (rows, beams) in enumerate([((2, 1), ids() * 2), ((1, 2), ids()), ((1, 1), ids() * 2)]):
        processor = attach(spec(one("Counting")), EngineId(number), FACTORIES, spool, is_overlapped=False)
        assert processor is not None
        changed = logits(*rows)
        processor(1, changed, beams, None)
        assert "several beams" in (spool.read(EngineId(number)).failure or "")
        assert is_ending(changed)


def test_without_an_end_the_rows_stay_as_they_are(spool: Spool) -> None:
    """The driver aborts then; nothing of it is delivered."""
    wanted = spec(one("Broken", kind="raising"), stop=StopRules(max_tokens=9))
    processor = attached(spool, wanted)
    changed = logits(1, 1)
    processor(1, changed, ids(), None)
    assert torch.equal(changed, logits(1, 1))
    assert spool.read(ME).failure is not None


def test_every_choice_has_instances_of_its_own(spool: Spool) -> None:
    """They may share one object at the engine; more of them than the request has fail it by name."""
    processor = attached(spool, spec(one("Counting"), n=2))
    for call in range(3):
        for choice in (11, 12):
            changed = logits(1, 1)
            processor(choice, changed, ids(call), None)
            assert changed.argmax() == call
    assert spool.read(ME).uses[0].tokens == 6
    processor(13, logits(1, 1), ids(), None)
    assert "more sequences than the request has choices" in (spool.read(ME).failure or "")


def test_the_best_of_more_have_instances_of_their_own(spool: Spool) -> None:
    """All that are followed, not only those that are returned."""
    processor = attached(spool, spec(one("Counting"), n=1, search=Search(width=3)))
    for choice in range(3):
        processor(choice, logits(1, 1), ids(), None)
    assert spool.read(ME).failure is None


def test_the_failure_of_one_choice_ends_them_all(spool: Spool) -> None:
    """They are one request."""
    processor = attached(spool, spec(one("Forcing", token_ids=[4]), one("Counting"), n=2))
    first, second = logits(1, 1), logits(1, 1)
    processor(1, first, ids(), None)
    processor(2, second, ids(), None)
    assert is_ending(first)
    assert is_ending(second)


def test_a_prompt_that_is_computed_in_parts_counts_once(spool: Spool) -> None:
    """The engine asks after each part; an instance that has been asked for one begins anew."""
    processor = attached(spool, spec(one("Counting")))
    for expected, output in [(0, 0), (0, 0), (0, 0), (1, 1), (2, 2)]:
        changed = logits(1, 1)
        processor(1, changed, ids(output), None)
        assert changed.argmax() == expected


def test_an_engine_that_works_ahead_shows_one_id_less(spool: Spool) -> None:
    """Its second call looks like its first, and is none."""
    processor = attached(spool, spec(one("Counting")), is_overlapped=True)
    for expected, output in enumerate([0, 0, 1, 2, 4]):
        changed = logits(1, 1)
        processor(1, changed, ids(output), None)
        assert changed.argmax() == expected
    assert spool.read(ME).failure is None


@pytest.mark.parametrize("is_overlapped", [False, True])
def test_a_token_they_were_not_asked_for_fails_the_request(spool: Spool, is_overlapped: bool) -> None:
    """The engine paused the sequence, or drafts tokens: what was promised of them is broken."""
    processor = attached(spool, spec(one("Counting")), is_overlapped=is_overlapped)
    for output in (0, 1, 3):
        processor(1, logits(1, 1), ids(output), None)
    assert "without its logits processors" in (spool.read(ME).failure or "")


@pytest.mark.parametrize("is_overlapped", [False, True])
def test_an_end_that_comes_too_early_leaves_nothing(spool: Spool, is_overlapped: bool) -> None:
    """The engine would forbid it as well, and draw from nothing; as engine torch, the request fails."""
    wanted = spec(one("Forcing", token_ids=[END]), min_tokens=2)
    changed = logits(1, 1)
    attached(spool, wanted, is_overlapped=is_overlapped)(1, changed, ids(), None)
    assert spool.read(ME).failure == "the constraints of the request leave no token to choose"
    assert is_ending(changed)


@pytest.mark.parametrize("is_overlapped", [False, True])
def test_an_end_may_come_when_there_are_tokens_enough(spool: Spool, is_overlapped: bool) -> None:
    """Counted by calls, so that an id that is not shown yet counts."""
    processor = attached(
        spool, spec(one("Forcing", token_ids=[END, 4]), min_tokens=2), is_overlapped=is_overlapped
    )
    for call in range(3):
        changed = logits(1, 1)
        processor(1, changed, ids(max(0, call - is_overlapped)), None)
        assert bool(changed[..., END].isfinite()) == (call == 2)
    assert spool.read(ME).failure is None


def test_a_grammar_always_finds_a_token(spool: Spool) -> None:
    """What is forbidden stays possible for it: an empty row could end the engine."""
    guided = Guided(kind=GuidedKind.REGEX, constraint="a")
    changed = logits(1, 1)
    attached(spool, spec(one("Forcing", token_ids=[4]), guided=guided))(1, changed, ids(), None)
    assert changed.argmax() == 4
    assert changed.isfinite().all()
    changed[..., 4] = -math.inf
    assert changed.max() > -math.inf


def test_a_neighbour_is_never_touched(spool: Spool) -> None:
    """By a processor that keeps its rows and writes into the old ones: they were never the batch's."""
    batch = logits(4)
    processor = attached(spool, spec(one("Keeping")))
    for call in range(4):
        processor(1, batch[call : call + 1].view(1, 1, -1), ids(call), None)
    assert torch.equal(batch[:, 1:], logits(4)[:, 1:])
    assert batch[0, 0] == logits()[0]


@pytest.mark.parametrize("kind", ["growing", "emptying", "exchanging"])
def test_the_engines_memory_stays_the_engines(spool: Spool, kind: str) -> None:
    """Whatever a processor does to its tensor."""
    batch = logits(3)
    attached(spool, spec(one("Broken", kind=kind)))(1, batch[1:2].view(1, 1, -1), ids(), None)
    assert torch.equal(batch[0], logits())
    assert torch.equal(batch[2], logits())
    assert is_ending(batch[1])


def test_nothing_ever_reaches_the_engine(spool: Spool) -> None:
    """Not even of what makes no sense; nor does it matter that nobody wants to hear of it."""
    processor = attached(spool, spec(one("Counting")))
    for nonsense in (None, object(), torch.tensor(3.0), torch.zeros(0)):
        for token_ids in (None, [], [None]):
            processor(1, nonsense, token_ids, None)  # type: ignore[arg-type]
    assert spool.read(ME).failure is not None
    spool.remove()
    changed = logits(1, 1)
    processor(1, changed, ids(), None)
    assert is_ending(changed)


def test_without_a_spool_they_still_work(spool: Spool) -> None:
    """The driver notices that it hears nothing."""
    processor = attached(spool, spec(one("Counting")))
    spool.remove()
    changed = logits(1, 1)
    processor(1, changed, ids(), None)
    assert changed.argmax() == 0


def test_copies_are_choices_of_one_request(spool: Spool) -> None:
    """An engine may copy it for each choice, and give all of them the same id: what they cost is added up."""
    processor = attached(spool, spec(one("Counting"), n=3))
    copies = [pickle.loads(pickle.dumps(processor)), copy.deepcopy(processor), copy.deepcopy(processor)]
    for call in range(3):
        for each in copies:
            changed = logits(1, 1)
            each(5, changed, ids(call), None, 1)
            assert changed.argmax() == call
    assert spool.read(ME).uses[0].tokens == 9
    copy.deepcopy(processor)(5, logits(1, 1), ids(), None, 1)
    assert "more sequences than the request has choices" in (spool.read(ME).failure or "")
    changed = logits(1, 1)
    copies[0](5, changed, ids(3), None, 1)
    assert is_ending(changed)


@pytest.mark.parametrize("kind", [None, "raising", "nan"])
def test_a_request_that_is_gone_leaves_nothing_behind(spool: Spool, kind: str | None) -> None:
    """In a process that lives for months, and may not collect what refers to itself."""
    gc.collect()
    gc.disable()
    try:
        processor = attached(spool, spec(one("Broken", kind=kind) if kind else one("Counting")))
        path = processor.orders.spool
        for call in range(2):
            processor(1, logits(1, 1), ids(call), None)
        assert path in _AT_WORK
        del processor
        assert path not in _AT_WORK
    finally:
        gc.enable()


def test_a_factory_that_cannot_travel_is_refused_by_name() -> None:
    """Before anything is loaded."""
    with pytest.raises(NotPicklable, match="logits processor 'mine' has to be found again"):
        Factories.of({"mine": lambda: None})


def test_a_module_that_is_missing_there_fails_the_request(spool: Spool) -> None:
    """And not the process that unpickles it."""
    processor = attached(spool, spec(one("Counting")))
    pickled = pickle.dumps(Counting).replace(b"operators_processors", b"operators_procezzors")
    orders = replace(processor.orders, factories={"Counting": pickled})
    changed = logits(1, 1)
    EngineProcessor(orders)(1, changed, ids(), None)
    told = "logits processor 'Counting' cannot be imported by the engine (ModuleNotFoundError)"
    assert spool.read(ME).failure == told
    assert is_ending(changed)


def test_it_works_where_the_engine_says(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the stream of that address; without one on the current stream."""
    entered: list[object] = []

    @contextmanager
    def on(stream: object) -> Iterator[None]:
        entered.append(stream)
        yield
        entered.append("left")

    monkeypatch.setattr("torch.cuda.ExternalStream", lambda pointer: ("stream", pointer))
    monkeypatch.setattr("torch.cuda.stream", on)
    processor = attached(spool, spec(one("Counting")))
    processor(1, logits(1, 1), ids(), None, 5)
    assert entered == []
    changed = logits(1, 1)
    processor(1, changed, ids(1), 1234, 5)
    assert entered == [("stream", 1234), "left"]
    assert changed.argmax() == 1


# Not skipped elsewhere: a skip is a failure where everything else is there.
if torch.cuda.is_available():

    def test_it_works_on_the_engines_stream(spool: Spool) -> None:
        """What was begun there before is waited for, and what comes after sees the change."""
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            changed = torch.zeros(1, 1, 320, device="cuda")
            torch.cuda._sleep(50_000_000)
            changed.copy_(logits(1, 1))
        attached(spool, spec(one("Counting", begin=300)))(1, changed, ids(), stream.cuda_stream, 5)
        with torch.cuda.stream(stream):
            assert changed.argmax().item() == 300
            assert changed.max().item() == logits()[300].item()
        assert spool.read(ME).failure is None
