"""Promises of the double with a model: constraints, processors, likelihoods, cache, ranks and hand-offs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.byte_tokenizer import END_ID, VOCAB_SIZE
from tests.conformance.tiny_llama import write_tiny_llama
from tests.doubles.trtllm_facts import read_facts, unknown_keys
from tests.doubles.trtllm_llms import ask, open_llm, read
from tests.doubles.trtllm_site import double_on_path

if TYPE_CHECKING:
    from tensorrt_llm import LLM
    from tensorrt_llm.llmapi import DisaggregatedParams

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(60),
]  # the engine's processes import torch and transformers

BLOCK = 16
PROMPT = list(range(20, 60))


@pytest.fixture
def anyio_backend() -> str:
    """The library knows no other."""
    return "asyncio"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny-llama"))


@pytest.fixture(scope="module")
def llm(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    """One for the module: two ranks, all that can be on."""
    environ = {"DOUBLE_GPUS": "2", "DOUBLE_TRANSFERS": str(tmp_path_factory.mktemp("transfers"))}
    with (
        double_on_path(),
        open_llm(
            model,
            {"offloads_blocks": True, "traps": [{"prompt": [107], "names_prompt_inputs": True}]},
            environ,
            tensor_parallel_size=2,
            enable_attention_dp=True,
            attention_dp_config={"kv_cache_routing_conversation_affinity": True},
            max_batch_size=4,
            max_num_tokens=64,
            enable_chunked_prefill=True,
            guided_decoding_backend="xgrammar",
            skip_tokenizer_init=False,
            cache_transceiver_config={"backend": "UCX"},
            kv_cache_config={"tokens_per_block": BLOCK, "event_buffer_max_size": 1000},
            enable_iter_perf_stats=True,
            return_perf_metrics=True,
            sleep_config={},
            batched_logits_processor=ForcesInBatch(),
        ) as opened,
    ):
        yield opened


class Forces:
    """Leaves one token, and fails when it is called in another way than the library calls."""

    def __init__(self, token: int) -> None:
        self._token = token
        self.calls = 0

    def __deepcopy__(self, memory: Any) -> Forces:
        return type(self)(self._token)

    def __call__(self, req_id: int, logits: Any, token_ids: Any, stream_ptr: Any, client_id: Any) -> None:
        assert logits.shape == (1, 1, VOCAB_SIZE)
        assert token_ids[0][: len(PROMPT)] == PROMPT
        assert (stream_ptr, client_id) == (None, None)
        assert req_id >= 2048
        # The token of the step before is not known yet.
        assert len(token_ids[0]) == len(PROMPT) + max(0, self.calls - 1)
        self.calls += 1
        kept = logits[..., self._token].clone()
        logits[...] = float("-inf")
        logits[..., self._token] = kept


class ForcesInBatch:
    """The same for all requests of a step."""

    def __call__(self, req_ids: Any, logits: Any, token_ids: Any, stream_ptr: Any, client_ids: Any) -> None:
        for request, row in enumerate(logits):
            Forces(7)(req_ids[request], row, [PROMPT], None, client_ids[request])


class Breaks:
    """Fails when it is called."""

    def __call__(self, req_id: int, logits: Any, token_ids: Any, stream_ptr: Any, client_id: Any) -> None:
        raise RuntimeError("a processor that breaks")


def _on(rank: int) -> Any:
    from tensorrt_llm.llmapi import SchedulingParams

    return SchedulingParams(attention_dp_rank=rank, attention_dp_relax=False)


def _guided(**guide: Any) -> Any:
    from tensorrt_llm.llmapi import GuidedDecodingParams

    return GuidedDecodingParams(**guide)


async def test_the_same_options_give_the_same_tokens(llm: LLM) -> None:
    """On any rank; without a seed, too, as it is always the same one."""
    options: dict[str, Any] = {"temperature": 1.0, "max_tokens": 6, "end_id": END_ID}
    seen = [await read(ask(llm, PROMPT, scheduling_params=_on(rank), **options)) for rank in (0, 1, 1)]
    assert len({tuple(each.tokens) for each in seen}) == 1


async def test_nothing_but_defaults_is_greedy(llm: LLM) -> None:
    """And so are a temperature of 0, and a top-k of 1; another option alone makes it warm."""
    settings: list[dict[str, Any]] = [{}, {"temperature": 0.0}, {"top_k": 1}, {"top_p": 1.0}]
    plain, cold, one, warm = [
        (await read(ask(llm, PROMPT, max_tokens=12, **options))).tokens for options in settings
    ]
    assert plain == cold == one != warm


async def test_a_constraint_is_obeyed_and_ends_with_the_end_id(llm: LLM) -> None:
    """A complete one leaves nothing else to say."""
    seen = await read(
        ask(llm, PROMPT, guided_decoding=_guided(regex="[0-9]{2}"), end_id=END_ID, max_tokens=9)
    )
    assert seen.error is None
    assert (len(seen.tokens), seen.tokens[-1], seen.reasons) == (3, END_ID, ["stop"])


async def test_choices_that_stop_words_end_before_min_tokens_end_one_by_one(llm: LLM) -> None:
    """Each by its own word or length; the request is over with the last of them."""
    options: dict[str, Any] = {"n": 3, "temperature": 1.0, "max_tokens": 6, "min_tokens": 6, "end_id": END_ID}
    free = await read(ask(llm, PROMPT, **options))
    words = [output.token_ids[1] for output in free.result.outputs[:2] if output.token_ids]
    seen = await read(ask(llm, PROMPT, stop_token_ids=words, **options))
    assert seen.error is None
    assert seen.reasons[:2] == ["stop", "stop"]
    assert all(reason in ("stop", "length") for reason in seen.reasons)


@pytest.mark.parametrize("guide", [{"regex": "("}, {"json": '{"type": "objekt"}'}, {"json": "{not json"}])
async def test_a_constraint_that_makes_no_sense_fails_its_own_request(
    llm: LLM, guide: dict[str, Any]
) -> None:
    """Late, and nobody else's."""
    beside = asyncio.create_task(read(ask(llm, PROMPT, max_tokens=20)))
    assert (await read(ask(llm, PROMPT, guided_decoding=_guided(**guide)))).error is not None
    assert (await beside).error is None


async def test_a_constraint_that_forbids_every_token_ends_the_device(model: Path) -> None:
    """What was compiled without a complaint, and has a dead end: it costs everybody who is there."""
    options: dict[str, Any] = {"guided_decoding_backend": "llguidance", "skip_tokenizer_init": False}
    with open_llm(model, **options) as llm:
        dead_end = _guided(grammar='start: "abcdefgh" dead\ndead: dead "x"')
        beside = asyncio.create_task(read(ask(llm, PROMPT, max_tokens=1000)))
        seen = await read(ask(llm, PROMPT, guided_decoding=dead_end, end_id=END_ID, max_tokens=20))
        assert len(seen.tokens) == len("abcdefgh")
        assert "device-side assert" in str(seen.error)
        assert (await beside).error is not None
        executor: Any = llm._executor
        await asyncio.to_thread(executor._process.exited.exception)
        assert not llm._check_health()


async def test_processors_run_over_there(llm: LLM) -> None:
    """A copy for each sequence, with the prompt in front, and a beam in front of the vocabulary."""
    processor: Any = Forces(9)
    seen = await read(ask(llm, PROMPT, logits_processor=processor, n=2, temperature=1.0, max_tokens=3))
    assert seen.error is None
    assert [output.token_ids for output in seen.result.outputs] == [[9, 9, 9], [9, 9, 9]]
    assert processor.calls == 0


class Wrong:
    """Takes what it gets, which is not how the library counts."""

    def __call__(self, *everything: Any) -> None:
        raise NotImplementedError


async def test_a_processor_must_have_the_parameters_of_the_library(llm: LLM) -> None:
    """The check is made over there, and costs everybody."""
    wrong: Any = Wrong()
    seen = await read(ask(llm, PROMPT, logits_processor=wrong, max_tokens=2))
    assert "signature" in str(seen.error)


class CountsParts:
    """Fails in its second call, before the answer has begun."""

    def __init__(self) -> None:
        self._calls = 0

    def __call__(self, req_id: int, logits: Any, token_ids: Any, stream_ptr: Any, client_id: Any) -> None:
        self._calls += 1
        assert self._calls < 2, "asked twice about the prompt"


async def test_processors_are_called_after_each_part_of_a_prompt(llm: LLM) -> None:
    """One that takes several passes; only the last of them chooses a token."""
    counting: Any = CountsParts()
    assert (await read(ask(llm, PROMPT, logits_processor=counting, max_tokens=1))).error is None
    seen = await read(ask(llm, [*PROMPT, *PROMPT], logits_processor=counting, max_tokens=1))
    assert "asked twice" in str(seen.error)


async def test_several_processors_run_in_order(llm: LLM) -> None:
    """The last one decides, if the first ones leave it anything."""
    processors: Any = [Forces(9), Forces(9)]
    assert (await read(ask(llm, PROMPT, logits_processor=processors, max_tokens=2))).tokens == [9, 9]


async def test_the_batched_processor_is_for_those_who_ask(llm: LLM) -> None:
    """It came with the arguments."""
    seen = await read(ask(llm, PROMPT, apply_batched_logits_processor=True, max_tokens=2))
    assert seen.tokens == [7, 7]


async def test_a_processor_that_raises_fails_everything_of_its_rank(llm: LLM) -> None:
    """It is called in the sampling of a whole batch. The next request is served."""
    breaking: Any = Breaks()
    beside = asyncio.create_task(read(ask(llm, PROMPT, max_tokens=80, scheduling_params=_on(0))))
    broken = await read(ask(llm, PROMPT, logits_processor=breaking, scheduling_params=_on(0)))
    assert "a processor that breaks" in str(broken.error)
    assert "a processor that breaks" in str((await beside).error)
    assert (await read(ask(llm, PROMPT, max_tokens=1, scheduling_params=_on(0)))).error is None


async def test_likelihoods_are_the_models_own(llm: LLM) -> None:
    """The K most likely ones, ranked from 1, and the token itself where it is none of them."""
    seen = await read(ask(llm, PROMPT, temperature=2.0, logprobs=2, max_tokens=8, seed=3))
    entries: Any = seen.result.outputs[0].logprobs
    assert len(entries) == len(seen.tokens)
    for token, entry in zip(seen.tokens, entries, strict=True):
        assert token in entry
        ranks = sorted(each.rank for each in entry.values())
        assert ranks[:2] == [1, 2]
        assert len(entry) == (2 if entry[token].rank <= 2 else 3)


async def test_likelihoods_of_the_prompt_are_one_place_early(llm: LLM) -> None:
    """As many as it has tokens: each is about the next one, and the last about the answer's first."""
    seen = await read(ask(llm, PROMPT, prompt_logprobs=0, logprobs=0, max_tokens=1, cache_salt="mine"))
    output: Any = seen.result.outputs[0]
    assert [next(iter(entry)) for entry in output.prompt_logprobs] == [*PROMPT[1:], seen.tokens[0]]
    assert output.prompt_logprobs[-1] == output.logprobs[0]


async def test_likelihoods_of_the_prompt_can_be_about_the_wrong_token(llm: LLM) -> None:
    """As in releases that looked the token up that stands there, and not the next one."""
    prompt = [107, *PROMPT]
    seen = await read(ask(llm, prompt, prompt_logprobs=0, max_tokens=1))
    output: Any = seen.result.outputs[0]
    assert [next(iter(entry)) for entry in output.prompt_logprobs] == prompt


async def test_likelihoods_of_a_prompt_come_with_every_response(llm: LLM) -> None:
    """All of them each time, however long the prompt is."""
    result = ask(llm, [109, *PROMPT], prompt_logprobs=0, max_tokens=3)
    kept = [result.outputs[0].prompt_logprobs async for _ in result]
    assert len(kept) == 3
    assert kept[0] == kept[1] == kept[2]
    assert len({id(each) for each in kept}) == 3


async def test_likelihoods_of_what_was_reused_are_missing_in_front(llm: LLM) -> None:
    """The others are named from the prompt's beginning on, with values that are not the names'."""
    prompt = [106, *PROMPT]
    options: Any = {"prompt_logprobs": 0, "max_tokens": 1, "scheduling_params": _on(1)}
    salts: list[Any] = [{}, {}, {"cache_salt": "another"}]
    whole, part, salted = [(await read(ask(llm, prompt, **options, **salt))).result for salt in salts]
    assert [each.cached_tokens for each in (whole, part, salted)] == [0, 32, 0]
    entries: list[Any] = [each.outputs[0].prompt_logprobs for each in (whole, part, salted)]
    assert [len(each) for each in entries] == [41, 9, 41]
    assert [next(iter(entry)) for entry in entries[1]] == prompt[1:10]
    assert entries[2] == entries[0]


async def test_what_is_cached_is_told_and_blocks_are_stored(llm: LLM) -> None:
    """Full blocks with their tokens, parents first; the last one of an answer may be partly filled."""
    llm.get_kv_cache_events(0.0)
    prompt = [101, *PROMPT]
    ids: list[Any] = [await read(ask(llm, prompt, max_tokens=4, scheduling_params=_on(1))) for _ in range(2)]
    assert [each.result.cached_tokens for each in ids] == [0, 32]
    events: list[Any] = llm.get_kv_cache_events(0.5)
    assert {event["attention_dp_rank"] for event in events} == {1}
    stored = [
        block for event in events if event["data"]["type"] == "stored" for block in event["data"]["blocks"]
    ]
    spoken = [[each["token_id"] for each in block["tokens"]] for block in stored]
    assert spoken[:2] == [prompt[:16], prompt[16:32]]
    assert spoken[2] == [*prompt[32:], *ids[0].tokens[:3]]
    assert len(spoken[2]) < BLOCK
    first = next(event for event in events if event["data"]["type"] == "stored")
    assert first["data"]["parent_hash"] is None
    updated = [event for event in events if event["data"]["type"] == "updated"]
    assert [key for event in updated for key in unknown_keys(event, read_facts()["events"]["updated"])] == []
    assert {event["data"]["block_hash"] for event in updated} <= {block["block_hash"] for block in stored}
    numbers = [event["event_id"] for event in events]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


async def test_a_salt_keeps_caches_apart(llm: LLM) -> None:
    """And is told with the blocks."""
    prompt = [102, *PROMPT]
    salts = ("one", "two", "two")
    seen = [
        await read(ask(llm, prompt, cache_salt=salt, max_tokens=1, scheduling_params=_on(0)))
        for salt in salts
    ]
    assert [each.result.cached_tokens for each in seen] == [0, 0, 32]
    events: list[Any] = llm.get_kv_cache_events(0.5)
    found = {block["cache_salt"] for event in events for block in event["data"].get("blocks", [])}
    assert {"one", "two"} <= found


async def test_a_conversation_stays_on_its_rank(llm: LLM) -> None:
    """A strict wish goes before it; a relaxed one may be passed over, and here it is."""
    from tensorrt_llm.llmapi import ConversationParams, SchedulingParams

    prompt = [103, *PROMPT]
    talk = ConversationParams(conversation_id="talk")
    seen = [await read(ask(llm, prompt, conversation_params=talk, max_tokens=1)) for _ in range(2)]
    assert [each.result.cached_tokens for each in seen] == [0, 32]
    relaxed = SchedulingParams(attention_dp_rank=0)
    for prompt in ([104, *PROMPT], [104, *PROMPT]):
        await read(ask(llm, prompt, scheduling_params=relaxed, max_tokens=1))
    strict = await read(ask(llm, [104, *PROMPT], scheduling_params=_on(0), max_tokens=1))
    assert strict.result.cached_tokens == 0


async def test_a_rank_that_does_not_exist_is_refused_late(llm: LLM) -> None:
    """By the engine."""
    assert (await read(ask(llm, PROMPT, scheduling_params=_on(2)))).error is not None


def _for_decode(params: DisaggregatedParams | None) -> DisaggregatedParams:
    assert params is not None
    params.request_type = "generation_only"
    return params


def _prefill(identity: int | None = None) -> DisaggregatedParams:
    from tensorrt_llm.llmapi import DisaggregatedParams

    return DisaggregatedParams(request_type="context_only", disagg_request_id=identity)


SAMPLED: dict[str, Any] = {"temperature": 1.0, "seed": 11, "end_id": END_ID, "max_tokens": 6}


async def test_a_handed_over_request_says_what_a_whole_one_says(llm: LLM) -> None:
    """The prefill says one token; the decode begins with it and goes on."""
    whole = await read(ask(llm, PROMPT, logprobs=0, **SAMPLED))
    first = await read(ask(llm, PROMPT, logprobs=0, disaggregated_params=_prefill(77), **SAMPLED))
    handed = first.result.outputs[0].disaggregated_params
    assert handed is not None
    assert (first.tokens, first.reasons) == (whole.tokens[:1], ["length"])
    assert (handed.first_gen_tokens, handed.request_type) == (first.tokens, "context_only")
    assert (handed.ctx_request_id, handed.ctx_dp_rank in (0, 1)) == (77, True)
    assert isinstance(handed.opaque_state, bytes)
    rest = await read(ask(llm, PROMPT, logprobs=0, disaggregated_params=_for_decode(handed), **SAMPLED))
    assert rest.error is None
    assert rest.tokens == whole.tokens
    assert rest.ids[0][0][:1] == first.tokens
    assert len(rest.result.outputs[0].logprobs or []) == len(rest.tokens)
    performance = rest.result.outputs[0].request_perf_metrics
    assert performance is not None
    assert performance.timing_metrics.kv_cache_transfer_start
    assert (
        performance.timing_metrics.kv_cache_transfer_start <= performance.timing_metrics.kv_cache_transfer_end
    )


async def test_a_hand_off_is_fetched_once(llm: LLM) -> None:
    """A second decode finds nothing, and one of another prompt, or of nothing, neither."""
    first = await read(ask(llm, PROMPT, disaggregated_params=_prefill(), **SAMPLED))
    handed = _for_decode(first.result.outputs[0].disaggregated_params)
    assert (await read(ask(llm, [*PROMPT, 5], disaggregated_params=handed, **SAMPLED))).error is not None
    first = await read(ask(llm, PROMPT, disaggregated_params=_prefill(), **SAMPLED))
    handed = _for_decode(first.result.outputs[0].disaggregated_params)
    assert (await read(ask(llm, PROMPT, disaggregated_params=handed, **SAMPLED))).error is None
    assert (await read(ask(llm, PROMPT, disaggregated_params=handed, **SAMPLED))).error is not None
    handed.opaque_state = b"something else"
    assert (await read(ask(llm, PROMPT, disaggregated_params=handed, **SAMPLED))).error is not None


async def test_the_first_likelihood_must_be_handed_over_too(llm: LLM) -> None:
    """Otherwise there is one fewer than there are tokens."""
    first = await read(ask(llm, PROMPT, disaggregated_params=_prefill(), **SAMPLED))
    handed = _for_decode(first.result.outputs[0].disaggregated_params)
    rest = await read(ask(llm, PROMPT, logprobs=0, disaggregated_params=handed, **SAMPLED))
    assert len(rest.result.outputs[0].logprobs or []) == len(rest.tokens) - 1


async def test_a_prefill_ends_by_a_stop_id_like_any_other(llm: LLM) -> None:
    """Then its reason is the one that a whole request would have."""
    whole = await read(ask(llm, PROMPT, **SAMPLED))
    first = await read(
        ask(llm, PROMPT, disaggregated_params=_prefill(), **{**SAMPLED, "end_id": whole.tokens[0]})
    )
    assert first.reasons == ["stop"]


async def test_sleep_loses_the_cache_and_tells_nobody(llm: LLM) -> None:
    """It waits for what runs; what arrives meanwhile waits for it, and there is no event."""
    prompt = [105, *PROMPT]
    running = asyncio.create_task(read(ask(llm, prompt, max_tokens=60, scheduling_params=_on(0))))
    await asyncio.sleep(0)
    assert await asyncio.to_thread(llm._collective_rpc, "sleep", (["kv_cache"],)) == [None]
    assert (await running).reasons == ["length"]
    await asyncio.to_thread(llm._collective_rpc, "wakeup", (["kv_cache"],))
    llm.get_kv_cache_events(0.0)
    again = await read(ask(llm, prompt, max_tokens=1, scheduling_params=_on(0)))
    assert (again.result.cached_tokens, again.error) == (0, None)


def test_statistics_come_from_every_rank(llm: LLM) -> None:
    """One row for each of its steps."""
    rows: list[Any] = llm.get_stats(0.5)
    assert {row["attentionDpRank"] for row in rows} == {0, 1}
    assert all(row["kvCacheStats"]["tokensPerBlock"] == BLOCK for row in rows)


def test_a_tokenizer_is_read_from_the_folder(model: Path) -> None:
    """Where one is wanted."""
    from tensorrt_llm.llmapi.llm import _tokenizer_of

    assert _tokenizer_of(model, trust_remote_code=False).eos_token_id == END_ID
