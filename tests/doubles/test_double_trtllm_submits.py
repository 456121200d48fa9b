"""Promises of the double's `generate_async`: what is refused at once, changed, and passed on."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.trtllm.capabilities import capabilities_of
from actors.engines.trtllm.config import TrtllmConfig
from tests.doubles.trtllm_llms import ask, open_llm, params, read, write_folder
from tests.doubles.trtllm_site import double_on_path
from tests.e2e.word_model import write_word_model

if TYPE_CHECKING:
    from tensorrt_llm import LLM

pytestmark = pytest.mark.anyio


END_ID = 256
CONFIG = TrtllmConfig(model_path=Path("model"), vocab_size=2000, context_length=128)


class Letters:
    """A tokenizer whose ids are code points."""

    eos_token_id = END_ID
    pad_token_id = None

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool) -> str:
        return "".join(map(chr, token_ids))


@pytest.fixture
def anyio_backend() -> str:
    """The library knows no other."""
    return "asyncio"


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the engine's process writes down what arrives."""
    return tmp_path_factory.mktemp("journal") / "requests.jsonl"


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory, journal: Path) -> Iterator[LLM]:
    """One for the module."""
    folder = write_folder(tmp_path_factory.mktemp("model"))
    with (
        double_on_path(),
        open_llm(folder, {"journal": str(journal)}, max_num_tokens=64, stream_interval=1) as opened,
    ):
        yield opened


@pytest.mark.parametrize(
    ("inputs", "error"),
    [
        ([], IndexError),
        ([5.0], AssertionError),
        ([5, "6"], AssertionError),
        (None, TypeError),
        (7, TypeError),
        ({}, TypeError),
        ({"prompt_token_ids": [5], "encoder_inputs": [5]}, ValueError),
        ({"prompt_token_ids": [5], "multi_modal_data": {"image": []}}, ValueError),
        ("text", ValueError),
    ],
)
def test_inputs_that_are_none_are_refused_at_once(llm: LLM, inputs: Any, error: type[Exception]) -> None:
    """Each by the kind of error that the library has for it."""
    with pytest.raises(error):
        llm.generate_async(inputs=inputs, sampling_params=params())


def test_numbers_of_numpy_are_no_token_ids(llm: LLM) -> None:
    """Although they behave as integers do."""
    import numpy as np

    with pytest.raises(AssertionError):
        llm.generate_async(inputs=list(np.array([5, 6])), sampling_params=params())


def test_options_of_another_kind_are_refused(llm: LLM) -> None:
    """A dictionary is none."""
    options: Any = {"max_tokens": 5}
    with pytest.raises(TypeError):
        llm.generate_async(inputs=[5], sampling_params=options)


def test_without_a_tokenizer_there_must_be_an_end(llm: LLM) -> None:
    """Nobody else could say where an answer ends."""
    with pytest.raises(ValueError, match="end_id"):
        ask(llm, [5], end_id=None)
    with pytest.raises(ValueError, match="end_id"):
        llm.generate_async(inputs=[5])


def test_a_budget_for_thoughts_needs_a_parser(llm: LLM) -> None:
    """And a tokenizer."""
    with pytest.raises(ValueError, match="thinking_token_budget"):
        ask(llm, [5], thinking_token_budget=4)


def test_a_prompt_that_one_pass_cannot_hold_is_refused_at_once(llm: LLM) -> None:
    """Where chunked prefill is off; but for requests whose prompt was computed elsewhere."""
    from tensorrt_llm.llmapi import RequestError

    with pytest.raises(RequestError, match="max_num_tokens"):
        ask(llm, [5] * 65)


def test_the_priority_has_a_range(llm: LLM) -> None:
    """Of both ends included."""
    for priority in (-0.1, 1.1):
        with pytest.raises(ValueError, match="priority"):
            ask(llm, [5], priority=priority)
    for priority in (0.0, 1.0):
        ask(llm, [5], priority=priority, max_tokens=1)


async def test_it_changes_the_options_that_it_is_given(llm: LLM) -> None:
    """An instance serves one request."""
    from tensorrt_llm.llmapi import DisaggregatedParams

    options = params(max_tokens=7, pad_id=None)
    options.pad_id = None
    llm.generate_async(
        inputs=[5],
        sampling_params=options,
        streaming=True,
        disaggregated_params=DisaggregatedParams(request_type="context_only"),
    )
    assert (options.max_tokens, options.pad_id, options._stream_interval) == (1, options.end_id, 1)


async def test_a_stage_needs_a_transceiver(llm: LLM) -> None:
    """Its absence is noticed late."""
    from tensorrt_llm.llmapi import DisaggregatedParams, RequestError

    for stage in ("context_only", "generation_only"):
        given = DisaggregatedParams(request_type=stage, first_gen_tokens=[5], opaque_state=b"")
        seen = await read(ask(llm, [5], disaggregated_params=given))
        assert isinstance(seen.error, RequestError)
    whole = DisaggregatedParams(request_type="context_and_generation")
    assert (await read(ask(llm, [5], disaggregated_params=whole))).error is None


async def test_params_without_a_type_are_refused_late(llm: LLM) -> None:
    """They need one as soon as they reach the engine."""
    from tensorrt_llm.llmapi import DisaggregatedParams

    assert (await read(ask(llm, [5], disaggregated_params=DisaggregatedParams()))).error is not None


async def test_a_salt_has_256_bytes_at_most(llm: LLM) -> None:
    """By the call itself; the driver's limit is the same."""
    longest = "é" * 128
    assert len(longest.encode()) == capabilities_of(CONFIG).longest_salt
    assert (await read(ask(llm, [5], cache_salt=longest))).error is None
    with pytest.raises(ValueError, match="256 bytes"):
        ask(llm, [5], cache_salt=longest + "s")


async def test_everything_reaches_the_engine(llm: LLM, journal: Path) -> None:
    """As it was given."""
    from tensorrt_llm.llmapi import ConversationParams, SchedulingParams

    result = llm.generate_async(
        inputs={"prompt_token_ids": [41, 42]},
        sampling_params=params(seed=9, temperature=0.5, top_k=3, max_tokens=1),
        trace_headers={"traceparent": "00-1"},
        scheduling_params=SchedulingParams(attention_dp_rank=1, attention_dp_relax=False),
        conversation_params=ConversationParams(conversation_id="one"),
        cache_salt="salt",
        priority=0.25,
    )
    await read(result)
    (arrived,) = [each for each in _written(journal) if each["cache_salt"] == "salt"]
    assert arrived["prompt_token_ids"] == [41, 42]
    assert arrived["priority"] == 0.25
    assert arrived["trace_headers"] == {"traceparent": "00-1"}
    assert arrived["scheduling_params"]["attention_dp_rank"] == 1
    assert arrived["conversation_params"] == {"conversation_id": "one"}
    assert {name: arrived["sampling_params"][name] for name in ("seed", "temperature", "top_k")} == {
        "seed": 9,
        "temperature": 0.5,
        "top_k": 3,
    }
    assert result.trace_headers == {"traceparent": "00-1"}


def _written(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_text().splitlines()]


def test_calls_are_no_coroutines(llm: LLM) -> None:
    """None of them."""
    assert not inspect.iscoroutinefunction(llm.generate_async)
    assert not inspect.iscoroutinefunction(llm.get_stats_async)


async def test_client_ids_count_from_two(tmp_path: Path) -> None:
    """They are unique in an LLM, and no ids of the engine."""
    with double_on_path(), open_llm(write_folder(tmp_path)) as llm:
        assert [ask(llm, [5]).request_id for _ in range(3)] == [2, 3, 4]


async def test_with_a_tokenizer_the_ends_of_the_model_are_added(tmp_path: Path) -> None:
    """Unless the caller names one: then nobody looks, and words stay without ids."""
    folder = write_folder(tmp_path)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [END_ID, 1001]}))
    with double_on_path(), open_llm(folder, tokenizer=Letters(), skip_tokenizer_init=False) as llm:
        options = params(end_id=None, stop="x")
        seen = await read(llm.generate_async(inputs="ab", sampling_params=options, streaming=True))
        assert (options.end_id, options.stop_token_ids) == (END_ID, [1001])
        assert (seen.result.prompt, len(seen.result.prompt_token_ids)) == ("ab", 2)
        assert (seen.tokens, seen.result.outputs[0].stop_reason) == ([1000], 1001)
        assert (await read(ask(llm, [5], stop="x"))).error is not None


async def test_a_queue_can_go_by_priority(tmp_path: Path) -> None:
    """The higher one first, among those that wait."""
    config = {"waiting_queue_policy": "priority"}
    with double_on_path(), open_llm(write_folder(tmp_path), max_batch_size=1, scheduler_config=config) as llm:
        ended: list[float] = []

        async def wait(priority: float) -> None:
            await read(ask(llm, [5], max_tokens=5, priority=priority))
            ended.append(priority)

        await asyncio.gather(*map(wait, (0.5, 0.1, 0.9, 0.3)))
        assert ended == [0.5, 0.9, 0.3, 0.1]


async def test_text_is_made_where_it_is_read(tmp_path: Path) -> None:
    """A stop string in it ends the result on this side, also where the engine was told of no stop."""
    folder = write_folder(tmp_path)
    with double_on_path(), open_llm(folder, tokenizer=Letters(), skip_tokenizer_init=False) as llm:
        options = params(end_id=None, stop=chr(1002), max_tokens=90, detokenize=True, ignore_eos=True)
        seen = await read(llm.generate_async(inputs="ab", sampling_params=options, streaming=True))
        output = seen.result.outputs[0]
        assert (output.text, output.token_ids) == (chr(1000) + chr(1001), [1000, 1001, 1002])
        assert (output.finish_reason, output.stop_reason) == ("stop", chr(1002))


async def test_a_constraint_without_a_backend_is_passed_over(llm: LLM) -> None:
    """Without a word: the answer is free text."""
    from tensorrt_llm.llmapi import GuidedDecodingParams

    seen = await read(ask(llm, [5], guided_decoding=GuidedDecodingParams(regex="[0-9]"), max_tokens=2))
    assert (seen.error, seen.tokens) == (None, [1000, 1001])


async def test_an_adapter_without_a_configuration_is_passed_over(llm: LLM, tmp_path: Path) -> None:
    """Without a word, too."""
    from tensorrt_llm.executor.request import LoRARequest

    adapter = LoRARequest("name", 1, str(tmp_path))
    assert (await read(ask(llm, [5], lora_request=adapter))).error is None


async def test_an_adapter_that_cannot_be_loaded_fails_its_request(tmp_path: Path) -> None:
    """Late; so does a structural tag with the backend that has none."""
    arguments: dict[str, Any] = {"lora_config": {}, "guided_decoding_backend": "llguidance"}
    arguments["skip_tokenizer_init"] = False
    with double_on_path(), open_llm(write_word_model(tmp_path), **arguments) as llm:
        from tensorrt_llm.executor.request import LoRARequest
        from tensorrt_llm.llmapi import GuidedDecodingParams

        adapter = LoRARequest("name", 1, str(tmp_path))
        assert (await read(ask(llm, [5], lora_request=adapter))).error is not None
        (tmp_path / "adapter_config.json").write_text("{}")
        assert (await read(ask(llm, [5], lora_request=adapter))).error is None
        tag = GuidedDecodingParams(structural_tag="{}")
        assert (await read(ask(llm, [5], guided_decoding=tag))).error is not None


@pytest.mark.parametrize(
    ("adapters", "named", "end"),
    [
        (["law"], False, "w9"),
        (["law", "tax"], False, "</s>"),
        (["tax"], False, "</s>"),
        (["law"], True, "</s>"),
    ],
)
def test_the_only_adapter_brings_the_tokenizer(
    tmp_path: Path, adapters: list[str], named: bool, end: str
) -> None:
    """For everything, where its folder has one and none was named."""
    model, law = write_word_model(tmp_path / "model"), write_word_model(tmp_path / "law")
    (tmp_path / "tax").mkdir()
    settings = json.loads((law / "tokenizer_config.json").read_text())
    (law / "tokenizer_config.json").write_text(json.dumps({**settings, "eos_token": "w9"}))
    arguments: dict[str, Any] = {"lora_config": {"lora_dir": [str(tmp_path / name) for name in adapters]}}
    if named:
        arguments["tokenizer"] = str(model)
    with double_on_path(), open_llm(model, skip_tokenizer_init=False, **arguments) as llm:
        found: Any = llm.tokenizer
        assert found.eos_token == end


async def test_the_engine_cannot_run_in_this_process(tmp_path: Path) -> None:
    """Arguments that the library would take for that are refused by the double."""
    folder = write_folder(tmp_path)
    with (
        double_on_path(),
        pytest.raises(RuntimeError, match="process"),
        open_llm(folder, gather_generation_logits=True),
    ):
        raise AssertionError("it was built")


def test_who_follows_constraints_needs_a_tokenizer(tmp_path: Path) -> None:
    """Its worker ends by an assertion."""
    folder = write_folder(tmp_path)
    with (
        double_on_path(),
        pytest.raises(RuntimeError, match="worker"),
        open_llm(folder, guided_decoding_backend="xgrammar"),
    ):
        pass
