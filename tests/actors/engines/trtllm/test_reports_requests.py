"""Field reports about what a request asks for (S05 to S09), with TensorRT-LLM's double behind the graph."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from protocols.errors import InvalidRequest
from protocols.telemetry import Outcome
from tests.actors.engines.trtllm.report_world import answer, arrived, ask, check_next, open_reports
from tests.actors.engines.trtllm.trap_world import config_of, ids
from tests.conformance.byte_tokenizer import write_byte_tokenizer
from tests.doubles.trtllm_llms import write_folder

if TYPE_CHECKING:
    from pathlib import Path

    from tests.actors.world import World

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60), pytest.mark.usefixtures("double")]

CONTEXT = 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_folder(tmp_path_factory.mktemp("model"))
    write_byte_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the engine's process writes down what arrives."""
    return tmp_path_factory.mktemp("journal") / "requests.jsonl"


@pytest.fixture(scope="module")
async def world(anyio_backend: object, double: None, folder: Path, journal: Path) -> AsyncIterator[World]:
    """A context of 64 that only the engine's own arguments tell of."""
    config = config_of(folder, max_seq_len=CONTEXT)
    async with open_reports(config, {"journal": str(journal)}) as opened:
        yield opened


@pytest.fixture(scope="module")
async def roomy(anyio_backend: object, double: None, folder: Path) -> AsyncIterator[World]:
    """Room for long answers, constraints, and passes of 23 tokens."""
    config = config_of(
        folder,
        {"context_length": 1024},
        max_seq_len=1024,
        max_num_tokens=23,
        guided_decoding_backend="llguidance",
        skip_tokenizer_init=False,
    )
    async with open_reports(config) as opened:
        yield opened


def refusal(found: object) -> InvalidRequest:
    assert isinstance(found, InvalidRequest)
    return found


class TestLongPrompts:
    """S05."""

    @pytest.mark.parametrize("length", [64, 157])
    async def test_one_that_is_too_long_is_the_callers_mistake(
        self, world: World, journal: Path, length: int
    ) -> None:
        """Refused with both numbers before the engine hears of it."""
        await check_next(world)
        before = len(arrived(journal))
        error = refusal((await ask(world, (7,) * length)).error)
        assert str(length) in str(error)
        assert str(CONTEXT) in str(error)
        assert len(arrived(journal)) == before
        await check_next(world)

    async def test_an_answer_is_cut_to_what_is_left(self, world: World) -> None:
        """60 of 64: four tokens, and "length"."""
        served = await ask(world, (7,) * 60, max_tokens=50)
        assert (served.tokens, served.finish_reasons) == (ids(4), ["length"])

    async def test_one_that_no_pass_can_hold(self, roomy: World) -> None:
        """Chunked prefill is off: the limit is that of a pass, and the text has it."""
        error = refusal((await ask(roomy, (7,) * 24)).error)
        assert "24" in str(error)
        assert "23" in str(error)
        await check_next(roomy)
        assert not roomy.crashes


SAMPLING: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"temperature": 0.0, "top_k": -1}, {"temperature": 0.0}),
    ({"temperature": 1.0, "top_k": -1}, {"top_k": 0}),
    ({"temperature": 1.0, "top_k": 0, "top_p": 1.0}, {"top_k": 0, "top_p": 1.0}),
    ({"temperature": 1.0, "seed": 7}, {"seed": 7}),
    ({"temperature": 1.0, "seed": 8}, {"seed": 8}),
    (
        {"temperature": 1.0, "repetition_penalty": 1.2, "frequency_penalty": 0.1, "presence_penalty": 0.1},
        {"repetition_penalty": 1.2, "frequency_penalty": 0.1, "presence_penalty": 0.1},
    ),
    (
        {"temperature": 1.0, "min_p": 0.05},
        {"min_p": 0.05},
    ),
]  # fmt: skip


class TestSampling:
    """S06."""

    @pytest.mark.parametrize(("asked", "given"), SAMPLING)
    async def test_every_option_reaches_the_engine(
        self, world: World, journal: Path, asked: dict[str, Any], given: dict[str, Any]
    ) -> None:
        """In the form that it accepts."""
        assert (await ask(world, max_tokens=2, **asked)).error is None
        params = arrived(journal)[-1]["sampling_params"]
        for name, value in given.items():
            assert params[name] in (value, None if value == 0 else value), name

    @pytest.mark.parametrize(
        ("option", "value"),
        [("temperature", -0.1), ("top_p", 1.5), ("min_p", 1.5), ("top_k", -2), ("repetition_penalty", 0.0)],
    )
    async def test_what_cannot_be_is_refused_by_name(self, world: World, option: str, value: float) -> None:
        """Never a bare error of a type."""
        assert option in refusal((await ask(world, **{"max_tokens": 2, option: value})).error).field

    async def test_requests_without_a_seed_share_none(self, world: World, journal: Path) -> None:
        """The library's own would be the same for everybody."""
        for _ in range(2):
            await ask(world, max_tokens=2, temperature=1.0)
        first, second = (each["sampling_params"]["seed"] for each in arrived(journal)[-2:])
        assert None not in (first, second)
        assert first != second

    async def test_an_unknown_option_is_refused_by_name(self, world: World) -> None:
        """Nobody looks at it, so nobody takes it."""
        wire: dict[str, Any] = {"token_ids": [1, 2], "sampling_options": {"unknown_option": 1}}
        error = refusal((await answer(world.ask(wire=wire))).error)
        assert error.field == "sampling_options.unknown_option"


GOOD = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


class TestConstraints:
    """S07."""

    @pytest.mark.parametrize(
        "constraint",
        [{"json": {"type": "objekt"}}, {"regex": "[a-"}, {"json": "{not json"}],
        ids=["a schema of no kind", "a pattern that ends early", "no JSON"],
    )
    async def test_a_bad_one_is_its_callers_mistake(self, roomy: World, constraint: dict[str, Any]) -> None:
        """By name; who runs beside it is untouched, and the next one is served."""
        running = roomy.ask(max_tokens=300, ignore_eos=True)
        error = refusal((await ask(roomy, max_tokens=5, guided_decoding=constraint)).error)
        assert "guided_decoding" in error.field
        await check_next(roomy)
        assert (await answer(running)).tokens == ids(300)

    async def test_without_a_back_end_none_is_obeyed_in_name_only(self, world: World) -> None:
        """Never free text with success."""
        error = refusal((await ask(world, max_tokens=5, guided_decoding={"json": GOOD})).error)
        assert "no guided decoding back-end is configured" in str(error)
        await check_next(world)


class TestLengths:
    """S08 and S09."""

    @pytest.mark.parametrize("stop", [{}, {"max_tokens": None}])
    async def test_an_answer_without_a_bound_has_all_the_room(
        self, world: World, journal: Path, stop: dict[str, Any]
    ) -> None:
        """54 of 64, which the engine is given and makes; eight such requests run together."""
        visits = [world.ask(prompt=range(1, 11), ignore_eos=True, **stop) for _ in range(8)]
        with anyio.fail_after(20):
            while world.graph.executor.running_sequences < 8:
                await world.settle()
        for visit in visits:
            served = await answer(visit)
            assert (served.tokens, served.finish_reasons) == (ids(54), ["length"])
        assert [each["sampling_params"]["max_tokens"] for each in arrived(journal)[-8:]] == [54] * 8

    async def test_ids_of_the_end_that_are_to_be_ignored(self, roomy: World) -> None:
        """Exactly as many tokens as were asked for."""
        served = await ask(roomy, (1, 2), max_tokens=700, ignore_eos=True, eos_token_ids=[1003])
        assert (len(served.tokens), served.finish_reasons) == (700, ["length"])

    @pytest.mark.parametrize(
        ("ends", "stops", "least", "reason"),
        [
            ([1003], [], 0, "eos"),
            ([1003], [], 8, "length"),
            ([2], [1006], 0, "stop"),
            ([1003], [1006], 8, "length"),
            ([1003], [1012], 8, "stop"),
            ([1003, 1010], [], 8, "eos"),
            ([1003], [], 30, "length"),
        ],
    )
    async def test_ends_that_are_held_back(
        self, roomy: World, ends: list[int], stops: list[int], least: int, reason: str
    ) -> None:
        """No id ends an answer before its least length, and any may afterwards; 30 of 20 are 20."""
        served = await ask(
            roomy, (1, 2), max_tokens=20, min_tokens=least, eos_token_ids=ends, stop_token_ids=stops
        )
        assert served.finish_reasons == [reason]
        # The other ids are held back by their logits, which this engine has none of: see the conformance kit.
        assert ends[0] not in served.tokens[:least]
        assert len(served.tokens) >= min(least, 20)
        assert (served.tokens[-1] in {*ends, *stops}) == (reason != "length")
        assert reason != "length" or len(served.tokens) == 20


async def test_the_books_of_all_this(world: World, roomy: World) -> None:
    """Refused or completed, and nothing else; nobody has died."""
    for each in (world, roomy):
        assert set(each.outcomes()) <= {Outcome.COMPLETED, Outcome.REFUSED}
        assert not each.crashes
