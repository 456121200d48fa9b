"""Constraints all the way: tried, handed to TensorRT-LLM's double, obeyed in the answers of a tiny model."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import Tokenizer

from actors.engines.trtllm import TrtllmConfig, TrtllmEngine
from protocols.errors import InvalidRequest
from protocols.spec import GenerationSpec, Guided, GuidedKind
from protocols.steps import FinishReason
from tests.conformance.byte_tokenizer import END_ID, VOCAB_SIZE
from tests.conformance.check_engine import open_reader
from tests.conformance.reader import EngineReader, changed, make_spec, preparer_of
from tests.conformance.tiny_llama import CONTEXT, write_tiny_llama
from tests.doubles.trtllm_site import double_on_path
from tests.doubles.xgrammar_path import DOUBLE, xgrammar_on_path

if TYPE_CHECKING:
    from pathlib import Path

# The engine's process imports torch and transformers.
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.fixture(scope="module", params=["llguidance", "xgrammar"])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """With the doubles on the path of all processes."""
    with double_on_path(), xgrammar_on_path(DOUBLE):
        yield request.param


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny-llama"))


@pytest.fixture(scope="module")
async def reader(anyio_backend: object, backend: str, folder: Path) -> AsyncIterator[EngineReader]:
    """A started engine that obeys constraints."""
    arguments: dict[str, Any] = {
        "max_batch_size": 4,
        "guided_decoding_backend": backend,
        "skip_tokenizer_init": False,
    }
    config = TrtllmConfig(
        model_path=folder, vocab_size=VOCAB_SIZE, context_length=CONTEXT, arguments=arguments
    )
    async with open_reader(TrtllmEngine(config)) as reader:
        yield reader


def spec(kind: str, constraint: Any) -> GenerationSpec:
    asked = make_spec(max_tokens=CONTEXT - 8, eos_token_ids=frozenset({END_ID}))
    return changed(asked, guided=Guided(kind=GuidedKind(kind), constraint=constraint))


async def answer(reader: EngineReader, folder: Path, kind: str, constraint: Any) -> str:
    """The text of one answer, without its end."""
    heard = await reader.complete(await preparer_of(reader).prepare(spec(kind, constraint)))
    assert heard.reason in {FinishReason.STOP, FinishReason.EOS}
    tokens = [token for token in heard.tokens if token != END_ID]
    return str(Tokenizer.from_file(str(folder / "tokenizer.json")).decode(tokens))


async def test_choices(reader: EngineReader, folder: Path) -> None:
    """The answer is one of them, also where they are made of what is special in a pattern."""
    choices = ["a.b", "(c|d)", "x*", "\\d", "é☃"]
    assert await answer(reader, folder, "choice", choices) in choices


async def test_patterns(reader: EngineReader, folder: Path) -> None:
    """The whole answer matches."""
    assert re.fullmatch("[a-e]{3,6}!", await answer(reader, folder, "regex", "[a-e]{3,6}!"))


async def test_grammars(reader: EngineReader, folder: Path) -> None:
    """GBNF is obeyed by both back-ends, whichever language they read."""
    gbnf = 'root ::= "<" [a-c] ">" | "none"'
    assert re.fullmatch("<[a-c]>|none", await answer(reader, folder, "grammar", gbnf))


async def test_values(reader: EngineReader, folder: Path) -> None:
    """A schema of values: one of them is answered, as JSON."""
    assert json.loads(await answer(reader, folder, "json", {"enum": ["a", 1, None]})) in ["a", 1, None]


@pytest.mark.parametrize(
    ("kind", "constraint"), [("json", {"type": "objekt"}), ("regex", "[a-"), ("json", "{not json")]
)
async def test_a_bad_constraint_never_gets_there(
    reader: EngineReader, folder: Path, kind: str, constraint: Any
) -> None:
    """It is refused by name; a plain request beside it is untouched, and the next constraint obeyed."""
    beside = reader.submit(make_spec())
    with pytest.raises(InvalidRequest) as refused:
        await preparer_of(reader).prepare(spec(kind, constraint))
    assert refused.value.field == f"sampling_options.guided_decoding.{kind}"
    await reader.read_to_end(beside)
    assert await answer(reader, folder, "choice", ["yes", "no"]) in {"yes", "no"}
