"""Logits processors of the operator and the test hook: found wrong before the model loads, or there."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from dynamo.common.backend.engine import (
    ForcedTokenSequenceSpec,
    LogitsProcessorSpec,
    deserialize_logits_processor_entries,
    serialize_logits_processor_entries,
)
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from protocols.spec import ProcessorEntry
from service.engine import ActorEngine
from service.models import ModelInvalid
from service.models.speech import end_id_of, token_ids_of
from service.options import ConfigError, EngineFacts, exit_code_of
from service.options.settings import ProcessorImport
from service.processors import hello
from service.processors.check import check_processors
from service.processors.imports import load_factories, load_processors
from tests.doubles.bridge import BridgeDriver
from tests.doubles.callers import wire_request
from tests.e2e.word_model import VOCAB_SIZE, write_word_model
from tests.service.options.world import TORCH_ONLY, load

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doubles.bridge import LoopThread

HOME = "tests.service.imported_processors"
HOOKS = ["DYN_ENABLE_TEST_LOGITS_PROCESSOR", "DYNAMO_ENABLE_TEST_LOGITS_PROCESSOR"]


def imported(factory: str, **options: object) -> ProcessorImport:
    return ProcessorImport(name="mine", factory=factory, options=options)


def test_a_processor_is_made_from_defaults_and_the_requests_options() -> None:
    """What the request says wins; no instance can change what the next one gets."""
    factory = load_factories([imported(f"{HOME}:Banning", token_ids=[5], strength=2.0)], "--x")["mine"]
    for _ in range(2):
        made = factory()
        assert (made.token_ids, made.strength) == ([5, 0], 2.0)
    made = factory(token_ids=[7])
    assert (made.token_ids, made.strength) == ([7, 0], 2.0)


def test_a_factory_may_need_options_that_only_a_request_has() -> None:
    """It is not tried then; classes, their methods and functions can be factories."""
    factories = load_factories([imported(f"{HOME}:Banning"), imported(f"{HOME}:Banning.softly")], "--x")
    assert factories["mine"]().strength == 0.5


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (imported("no_such_module:Factory"), "cannot be imported (ModuleNotFoundError"),
        (imported(f"{HOME}.deeper:Factory"), "cannot be imported (ModuleNotFoundError"),
        (imported(f"{HOME}:Baning"), "has no 'Baning'; the nearest is Banning"),
        (imported(f"{HOME}:Banning.hard"), "has no 'Banning.hard'"),
        (imported(f"{HOME}:NOT_CALLABLE"), "is no factory but int"),
        (imported(f"{HOME}:Banning", colour="red"), "unexpected keyword argument 'colour'"),
        (imported(f"{HOME}:Banning", colour="red"), "it takes (token_ids: 'list[int]', strength"),
        (
            imported(f"{HOME}:Banning", token_ids=[1], strength=-1.0),
            "ValueError: strength must not be negative",
        ),
        (imported(f"{HOME}:no_processor"), "makes a int, which cannot be called with token ids and logits"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_told_by_name(one: ProcessorImport, told: str) -> None:
    """The option, the value, and what is the matter with it."""
    with pytest.raises(ConfigError) as caught:
        load_factories([one], "DYN_X")
    assert str(caught.value).startswith(f"DYN_X: value 'mine={one.factory}'"[:80])
    assert told in str(caught.value)


def test_a_module_that_breaks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever happens while it is imported."""
    (tmp_path / "breaks_on_import.py").write_text("1 / 0\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"cannot be imported \(ZeroDivisionError: division by zero\)"):
        load_factories([imported("breaks_on_import:Factory")], "--x")


def test_all_that_is_wrong_is_told_at_once() -> None:
    """A line each."""
    with pytest.raises(ConfigError) as caught:
        load_factories([imported("no_such_module:A"), imported(f"{HOME}:NOT_CALLABLE")], "--x")
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("hook", [None, *HOOKS])
def test_an_engine_that_runs_none_refuses_them(hook: str | None) -> None:
    """A choice that nobody obeys would be a lie."""
    words = ["--engine", "synthetic"]
    words += [] if hook else ["--logits-processor", f"mine={HOME}:Banning.softly"]
    settings = load(*words, env={hook: "1"} if hook else {})
    with pytest.raises(ConfigError, match="engine 'synthetic' runs no logits processors") as caught:
        load_processors(settings, "synthetic")
    assert str(caught.value).startswith(f"{hook or '--logits-processor'}: ")
    assert exit_code_of(list(check_processors(settings, TORCH_ONLY))) == 2


@pytest.mark.parametrize(("name", "level"), [("Banning.softly", "ok"), ("NoSuch", "error")])
def test_the_check_imports_them(name: str, level: str) -> None:
    """``--check-config`` finds what a start would find."""
    settings = load("--logits-processor", f"mine={HOME}:{name}")
    (found,) = check_processors(settings, TORCH_ONLY)
    assert (found.subject, found.level) == ("logits processors", level)
    assert "mine" in found.text


def test_the_check_says_nothing_where_there_are_none() -> None:
    """Nor where no engine can be chosen, which is told elsewhere."""
    assert list(check_processors(load(), TORCH_ONLY)) == []
    settings = load("--logits-processor", f"mine={HOME}:NoSuch")
    nothing = EngineFacts(tensorrt_installed=False, torch_installed=False, gpus=0)
    assert list(check_processors(settings, nothing)) == []


def write_byte_tokenizer(folder: Path) -> Path:
    """A tokenizer that can say everything, a byte an id, and ends with id 256."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: number for number, letter in enumerate(letters)} | {"</s>": 256}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "generation_config.json").write_text('{"eos_token_id": [256, 3]}', encoding="utf-8")
    return folder


def test_the_answer_is_said_in_the_models_own_ids(tmp_path: Path) -> None:
    """Without special tokens; what ends it is the first end the model has."""
    folder = write_byte_tokenizer(tmp_path)
    token_ids = token_ids_of(folder, hello.ANSWER)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.decode(list(token_ids)) == "Hello world!"
    assert end_id_of(folder) == 256


@pytest.mark.parametrize(
    ("config", "end_id"),
    [
        ({"eos_token_id": 7}, 7),
        ({"text_config": {"eos_token_id": [9, 8]}}, 9),
        ({"eos_token_id": None}, None),
    ],
)
def test_the_end_may_stand_in_the_models_own_configuration(
    tmp_path: Path, config: dict[str, Any], end_id: int | None
) -> None:
    """Also in the part about text; without any there is none to force."""
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if end_id is not None:
        assert end_id_of(tmp_path) == end_id
        return
    with pytest.raises(ModelInvalid, match="names no end-of-sequence token"):
        end_id_of(tmp_path)


def test_a_model_that_cannot_say_it_refuses_the_hook(tmp_path: Path) -> None:
    """No tokenizer, one without the words, ids beyond the vocabulary: told by the variable's name."""
    with pytest.raises(ConfigError, match=r"DYN_X: its tokenizer\.json cannot be read"):
        hello.resolve_test_spec(tmp_path, VOCAB_SIZE, "DYN_X")
    words = write_word_model(tmp_path / "words")
    with pytest.raises(ConfigError, match=r"DYN_X: its tokenizer cannot say 'Hello world!'"):
        hello.resolve_test_spec(words, VOCAB_SIZE, "DYN_X")
    with pytest.raises(ConfigError, match="vocabulary ends at 99"):
        hello.resolve_test_spec(write_byte_tokenizer(tmp_path), 100, "DYN_X")


def test_the_hooks_entries_cross_to_another_process(tmp_path: Path) -> None:
    """As the framework's own, serialised by it, and as ours."""
    spec = hello.resolve_test_spec(write_byte_tokenizer(tmp_path), 320, "DYN_X")
    assert spec.generation_only
    sent = json.loads(json.dumps(serialize_logits_processor_entries(spec.entries)))
    assert tuple(deserialize_logits_processor_entries(sent)) == spec.entries
    (entry,) = hello.entries_of(spec)
    assert msgspec.json.decode(msgspec.json.encode(entry), type=ProcessorEntry) == entry
    assert hello.entries_of(None) == ()


@pytest.fixture
def tiny_folder(tmp_path: Path) -> Path:
    """A tiny model that has all bytes as words."""
    from tests.actors.engines.torch.tiny_models import make_model, save

    folder = save(make_model("llama", eos_token_id=256), tmp_path / "tiny")
    return write_byte_tokenizer(folder)


def assembled(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str, **environ: str) -> ActorEngine:
    monkeypatch.setattr("service.serving.os.environ", environ)
    argv = ["--engine", "torch", "--model", str(folder), "--threads", "1", "--max-num-seqs", "4", *words]
    engine, _ = asyncio.run(ActorEngine.from_args([*argv, "--kv-block-size", "8"]))
    return engine


@pytest.mark.timeout(120)
@pytest.mark.parametrize("variable", HOOKS)
def test_with_the_hook_every_answer_is_the_same(
    tiny_folder: Path, loop_thread: LoopThread, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Users' requests with their own options, and the framework's health checks; the facade says so."""
    facade = assembled(monkeypatch, tiny_folder, **{variable: "1"})
    monkeypatch.setattr("service.engine._FLUSH_S", 0.0)
    driver = BridgeDriver(facade, loop_thread)
    answer = token_ids_of(tiny_folder, hello.ANSWER)
    try:
        driver.start()
        spec = loop_thread.run(facade.logits_processor_spec())
        assert spec == LogitsProcessorSpec((ForcedTokenSequenceSpec(answer, 256),), generation_only=True)
        asked = wire_request(max_tokens=40, temperature=1.0, n=2, eos_token_ids=[256])
        chunks = driver.generate(asked).read_to_end().chunks
        said = [[t for c in chunks if c["index"] == index for t in c["token_ids"]] for index in (0, 1)]
        assert said == [[*answer, 256]] * 2
        payload = loop_thread.run(facade.health_check_payload())
        assert payload is not None
        probe = driver.generate(payload).read_to_end()
        assert probe.error is None
        assert probe.chunks[0]["token_ids"] == [answer[0]]
    finally:
        driver.close()
        driver.cleanup()


@pytest.mark.timeout(120)
def test_a_request_chooses_what_the_operator_named(
    tiny_folder: Path, loop_thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By annotation, with options over the defaults; nobody else's answer changes."""
    from dynamo.llm.exceptions import InvalidArgument

    text = f'banned={HOME}:Banning={{"strength": 1000}}'
    facade = assembled(monkeypatch, tiny_folder, "--logits-processor", text)
    monkeypatch.setattr("service.engine._FLUSH_S", 0.0)
    driver = BridgeDriver(facade, loop_thread)

    def tokens(**options: Any) -> list[int]:
        call = driver.generate(wire_request(max_tokens=6, ignore_eos=True, **options)).read_to_end()
        assert call.error is None
        return [token for chunk in call.chunks for token in chunk["token_ids"]]

    try:
        driver.start()
        assert loop_thread.run(facade.logits_processor_spec()) is None
        plain = tokens()
        banned = f'logits-processor:banned={{"token_ids": {plain[:1]}}}'
        assert tokens(annotations=["other", banned])[0] not in (plain[0], 0)
        assert tokens() == plain
        for wrong in ("logits-processor:banned", "logits-processor:other"):
            call = driver.generate(wire_request(max_tokens=6, annotations=[wrong])).read_to_end()
            assert isinstance(call.error, InvalidArgument)
            assert "annotations" in str(call.error)
    finally:
        driver.close()
        driver.cleanup()
