"""Promises of the double's smaller types: hand-offs, ranks, conversations, adapters, outputs, errors, ids."""

import importlib
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.doubles.trtllm_facts import found_at
from tests.doubles.trtllm_site import SCRIPT, double_on_path


@pytest.fixture(scope="module")
def api() -> Iterator[ModuleType]:
    """The module of the public names."""
    with double_on_path():
        yield importlib.import_module("tensorrt_llm.llmapi")


def test_a_request_type_is_lower_cased_and_known(api: ModuleType) -> None:
    """Capitals do not matter, other words do, and without a type the engine refuses the request."""
    assert api.DisaggregatedParams(request_type="Context_Only").request_type == "context_only"
    with pytest.raises(ValueError, match="request type"):
        api.DisaggregatedParams(request_type="prefill")
    with pytest.raises(ValueError, match="request type"):
        api.DisaggregatedParams().get_request_type()


def test_the_global_id_goes_before_the_prefill_engines_own(api: ModuleType) -> None:
    """Both sides use the id that they share, where there is one."""
    own = {"first_gen_tokens": [1], "ctx_request_id": 5}
    assert api.DisaggregatedParams(**own).get_context_phase_params().req_id == 5
    assert api.DisaggregatedParams(**own, disagg_request_id=0).get_context_phase_params().req_id == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"first_gen_tokens": None},
        {"first_gen_tokens": ["1"]},
        {"first_gen_tokens": [1], "opaque_state": "text"},
        {"first_gen_tokens": [1], "ctx_request_id": "5"},
    ],
)
def test_a_hand_off_of_other_types_is_refused_by_the_engine(api: ModuleType, wrong: dict) -> None:
    """What came over a wire as text must be bytes and numbers again before the engine sees it."""
    params = api.DisaggregatedParams(request_type="generation_only", **wrong)
    with pytest.raises(TypeError):
        params.get_context_phase_params()


@pytest.mark.parametrize("hashes", [[], [[1] * 7], [["1"] * 8], [(1,) * 8]])
def test_handles_and_hashes_must_fit(api: ModuleType, hashes: list) -> None:
    """One list of eight integers for each handle."""
    with pytest.raises(AssertionError):
        api.DisaggregatedParams(multimodal_embedding_handles=[{}], multimodal_hashes=hashes)


@pytest.mark.parametrize("blank", [None, "", "  \n"])
def test_a_blank_conversation_is_refused(api: ModuleType, blank: str | None) -> None:
    """An id that says nothing would put strangers together."""
    with pytest.raises(ValueError, match="blank"):
        api.ConversationParams(conversation_id=blank)


def test_a_conversation_is_known_without_its_outer_blanks(api: ModuleType) -> None:
    """The same id with blanks around it is the same conversation."""
    assert api.ConversationParams(conversation_id=" a b ").conversation_id == "a b"


def test_a_wished_rank_is_no_order_by_default(api: ModuleType) -> None:
    """Who wants a rank for sure must say so."""
    assert api.SchedulingParams(attention_dp_rank=1).attention_dp_relax is True


def test_an_adapter_must_be_there(api: ModuleType, tmp_path: Path) -> None:
    """The path is looked up at once, also the empty one that is the default; the source has two words."""
    adapter = api.LoRARequest("name", 3, str(tmp_path))
    assert (adapter.name, adapter.adapter_id, adapter.path, adapter.ckpt_source) == (
        "name",
        3,
        str(tmp_path),
        "hf",
    )
    with pytest.raises(ValueError, match="lora_path"):
        api.LoRARequest("name", 3)
    with pytest.raises(ValueError, match="lora_ckpt_source"):
        api.LoRARequest("name", 3, str(tmp_path), "gguf")


def test_a_prompt_adapter_must_be_there(tmp_path: Path, api: ModuleType) -> None:
    """As an adapter, with another error."""
    request = found_at("tensorrt_llm.executor.request.PromptAdapterRequest")
    assert request("name", 3, str(tmp_path)).prompt_adapter_id == 3
    with pytest.raises(RuntimeError, match="prompt_adapter_local_path"):
        request("name", 3)


def test_a_diff_covers_the_latest_response_only(api: ModuleType) -> None:
    """It begins where the response before it ended, and stays when nothing new came."""
    output = api.CompletionOutput(0, text="ab", token_ids=[1, 2], logprobs=[-1.0, -2.0])
    output._last_text_len, output._last_token_ids_len, output._last_logprobs_len = 1, 1, 1
    assert (output.text_diff, output.token_ids_diff, output.logprobs_diff, output.length) == (
        "b",
        [2],
        [-2.0],
        2,
    )
    output.token_ids = []
    assert output.token_ids_diff == []


def test_outputs_take_no_other_attributes(api: ModuleType) -> None:
    """A misspelt name is an error, not a new attribute."""
    with pytest.raises(AttributeError):
        api.CompletionOutput(0).tokens = []


def test_a_dead_engine_is_no_error_of_a_request(api: ModuleType) -> None:
    """They are siblings, and the dead one knows what was seen first."""
    cause = OSError("gone")
    dead = api.EngineDeadError(cause)
    assert dead.root_cause is cause
    assert api.EngineDeadError().root_cause is None
    assert not issubclass(api.EngineDeadError, api.RequestError)
    assert not issubclass(api.RequestError, api.EngineDeadError)


def test_a_compiled_error_prints_its_frames(api: ModuleType) -> None:
    """The message is there alone, and with a stack when it is printed."""
    error = found_at("tensorrt_llm.executor.CppExecutorError")("boom")
    assert error.message == "boom"
    assert str(error).startswith("boom\nStack trace:")


def test_what_crosses_to_the_engine_can_be_pickled(api: ModuleType) -> None:
    """Options, hand-offs and outputs come out equal in another process."""
    things = [
        api.SamplingParams(temperature=1.0, n=2),
        api.DisaggregatedParams(request_type="context_only", opaque_state=b"\0"),
        api.CompletionOutput(1, token_ids=[3]),
        api.SchedulingParams(attention_dp_rank=1),
        api.ConversationParams(conversation_id="a"),
    ]
    assert pickle.loads(pickle.dumps(things)) == things


def test_ids_of_two_engines_differ_and_are_large() -> None:
    """They never meet an engine's own ids, fit into 63 bits, and need two numbers that fit."""
    with double_on_path():
        new_id = found_at("tensorrt_llm.llmapi.disagg_utils.get_global_disagg_request_id")
        ids = {new_id(node_id, process_id) for node_id in (0, 255) for process_id in (0, 63)}
        assert len(ids) == 4
        assert all(1 << 40 <= each < 1 << 63 for each in ids)
        for wrong in ((256, 0), (0, 64), (-1, 0)):
            with pytest.raises(ValueError, match="must be in"):
                new_id(*wrong)


def test_older_releases_make_ids_from_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script can ask for the shape that the function had up to 1.3.0rc21."""
    monkeypatch.setenv(SCRIPT, json.dumps({"has_machine_ids": True}))
    with double_on_path():
        new_id = found_at("tensorrt_llm.llmapi.disagg_utils.get_global_disagg_request_id")
        assert new_id(machine_id=1023) >= 1 << 40
        with pytest.raises(TypeError):
            new_id(1, 2)


def test_a_release_may_not_know_what_fits_into_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """rc20 has no such method; who calls it finds an AttributeError."""
    monkeypatch.setenv(SCRIPT, json.dumps({"lacks": ["get_kv_cache_capacity"]}))
    with double_on_path():
        assert not hasattr(importlib.import_module("tensorrt_llm.llmapi").LLM, "get_kv_cache_capacity")


@pytest.mark.parametrize("name", ["ConversationParams", "EngineDeadError"])
def test_older_releases_lack_names(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Who imports a name that is younger than the script's release does not find it."""
    monkeypatch.setenv(SCRIPT, json.dumps({"lacks": [name]}))
    with double_on_path():
        assert not hasattr(importlib.import_module("tensorrt_llm.llmapi"), name)


def test_a_budget_of_thoughts_forces_their_end(api: ModuleType) -> None:
    """From the budget on one id after the other is the only one, and only once the thoughts have begun."""
    import torch

    ids = {"<think>": [10], "</think>": [11, 12]}
    tokenizer = SimpleNamespace(encode=lambda text, add_special_tokens: ids[text])
    params = api.SamplingParams(thinking_token_budget=2)
    for _ in range(2):
        api.add_thinking_budget_logits_processor(params, reasoning_parser="a", tokenizer=tokenizer)
    (processor,) = params.logits_processor

    def left(tokens: list[int]) -> list[int]:
        logits = torch.zeros(1, 16)
        processor(1, logits, [tokens], None, None)
        return torch.isfinite(logits[0]).nonzero().flatten().tolist()

    assert left([10, 1, 1]) == [11]
    assert left([10, 1, 1, 11]) == [12]
    assert [len(left(tokens)) for tokens in ([10, 1], [1, 1, 1], [10, 1, 1, 11, 12])] == [16, 16, 16]


def test_a_budget_of_thoughts_needs_a_parser_and_a_tokenizer(api: ModuleType) -> None:
    """Without a budget nothing is needed, and nothing is attached."""
    params = api.SamplingParams()
    api.add_thinking_budget_logits_processor(params, reasoning_parser=None, tokenizer=None)
    assert params.logits_processor is None
    with pytest.raises(ValueError, match="reasoning_parser"):
        api.add_thinking_budget_logits_processor(
            api.SamplingParams(thinking_token_budget=1), reasoning_parser=None, tokenizer=None
        )


def test_media_are_not_loaded(api: ModuleType) -> None:
    """Texts become inputs, by keywords only; media are refused by name."""
    load = found_at("tensorrt_llm.inputs.default_multimodal_input_loader")
    common = {"tokenizer": None, "model_dir": "", "model_type": "", "modality": "image", "prompts": ["a"]}
    assert load(**common) == [{"prompt": "a"}]
    with pytest.raises(NotImplementedError, match="media"):
        load(**common, media=["file"])
