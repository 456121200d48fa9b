"""Every option of a spec reaches TensorRT-LLM in the form it takes; nothing is left to its own defaults."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.engines.trtllm.capabilities import capabilities_of
from actors.engines.trtllm.config import TrtllmConfig
from actors.engines.trtllm.requests.sampling import sampling_params, stop_ids
from actors.resolving import SpecRules
from protocols.engine import EngineInfo
from protocols.errors import InvalidRequest
from protocols.requests import GenerateRequest, SamplingOptions
from protocols.spec import Output, Sampling, Search, Stage, StopRules
from tests.actors.engines.trtllm.scripted import spec

if TYPE_CHECKING:
    from actors.engines.trtllm.library import Library


def params(library: Library, **fields: Any) -> Any:
    """Of a request with these fields."""
    return sampling_params(spec(**fields), library)


class TestLength:
    def test_the_whole_context_is_asked_for_by_number(self, library: Library) -> None:
        """Left out, it would be 32."""
        assert params(library, max_tokens=54).max_tokens == 54

    def test_a_prefill_asks_for_one_token(self, library: Library) -> None:
        """With a minimum that is not above it."""
        stop = StopRules(max_tokens=20, min_tokens=8, eos_token_ids=frozenset({2}))
        found = params(library, stage=Stage.PREFILL, stop=stop)
        assert (found.max_tokens, found.min_tokens) == (1, 1)
        assert found.return_perf_metrics

    def test_min_tokens(self, library: Library) -> None:
        """As the resolver made it; where nothing ends the answer there is nothing to hold back."""
        ends = frozenset({2})
        stop = StopRules(max_tokens=20, min_tokens=8, eos_token_ids=ends)
        assert params(library, stop=stop).min_tokens == 8
        assert params(library, stop=StopRules(max_tokens=20, min_tokens=8)).min_tokens is None


class TestStops:
    def test_the_first_end_id_is_the_engines(self, library: Library) -> None:
        """The others are ids that it stops at; ids that end an answer are part of it."""
        stop = StopRules(max_tokens=9, eos_token_ids=frozenset({5, 2}), stop_token_ids=frozenset({7}))
        found = params(library, stop=stop)
        assert (found.end_id, sorted(found.stop_token_ids)) == (2, [5, 7])
        assert found.include_stop_str_in_output

    @pytest.mark.parametrize(("ends", "pad"), [({5, 2}, 2), (set(), 0)])
    def test_what_fills_up_is_said_and_is_an_id(self, library: Library, ends: set[int], pad: int) -> None:
        """Left out, it would be the end id, which is none where nothing ends the answer."""
        stop = StopRules(max_tokens=9, eos_token_ids=frozenset(ends))
        assert params(library, stop=stop).pad_id == pad

    def test_without_an_end_id_stop_ids_still_count(self, library: Library) -> None:
        """The library's own ``ignore_eos`` would switch them off, too."""
        found = params(library, stop=StopRules(max_tokens=9, stop_token_ids=frozenset({7})))
        assert (found.end_id, found.stop_token_ids, found.ignore_eos) == (-1, [7], False)

    def test_with_a_minimum_the_driver_sees_to_all_others(self, library: Library) -> None:
        """The engine holds only its end id back until then."""
        stop = StopRules(
            max_tokens=9, min_tokens=3, eos_token_ids=frozenset({2, 5}), stop_token_ids=frozenset({7})
        )
        assert params(library, stop=stop).stop_token_ids is None
        assert stop_ids(stop).late == {5, 7}


class TestChoice:
    def test_greedy(self, library: Library) -> None:
        """Said by the temperature, whatever the library makes of options that are not there."""
        found = params(library)
        assert found.temperature == 0.0
        assert (found.top_k, found.top_p) == (None, None)

    def test_one_candidate_is_greedy_at_any_temperature(self, library: Library) -> None:
        """The limit is what makes it so: the temperature alone would draw."""
        found = params(library, sampling=Sampling(temperature=0.7, top_k=1, top_p=0.9))
        assert (found.temperature, found.top_k, found.top_p) == (0.7, 1, None)

    @pytest.mark.parametrize("top_k", [0, 40])
    def test_no_limit_is_zero(self, library: Library, top_k: int) -> None:
        """Never -1, which it refuses."""
        assert params(library, sampling=Sampling(temperature=0.7, top_k=top_k)).top_k == top_k

    def test_every_option_arrives(self, library: Library) -> None:
        """As it was asked for."""
        asked = Sampling(
            temperature=0.7, top_k=40, top_p=0.9, min_p=0.05, repetition_penalty=1.2,
            presence_penalty=0.1, frequency_penalty=-0.1, seed=2**64 - 1,
        )  # fmt: skip
        found = params(library, sampling=asked)
        for name in Sampling.__struct_fields__:
            assert getattr(found, name) == getattr(asked, name), name

    def test_a_seed_is_always_given(self, library: Library) -> None:
        """Left out, all requests would share one."""
        assert params(library, sampling=Sampling(temperature=1.0, seed=0)).seed == 0

    def test_no_two_requests_share_an_object(self, library: Library) -> None:
        """The library writes into it."""
        asked = spec()
        assert sampling_params(asked, library) is not sampling_params(asked, library)


class TestChoices:
    def test_samples_of_which_the_best_are_returned(self, library: Library) -> None:
        """n of best_of."""
        found = params(library, n=2, search=Search(width=4), sampling=Sampling(temperature=1.0))
        assert (found.n, found.best_of, found.use_beam_search) == (2, 4, False)

    def test_beams(self, library: Library) -> None:
        """Their number is best_of."""
        found = params(library, n=2, search=Search(width=4, is_beam=True, length_penalty=1.5))
        assert (found.n, found.best_of, found.use_beam_search, found.length_penalty) == (2, 4, True, 1.5)


class TestOutput:
    @pytest.mark.parametrize(("asked", "given_"), [(None, None), (0, 1), (1, 1), (5, 5)])
    def test_logprobs_have_a_floor(self, library: Library, asked: int | None, given_: int | None) -> None:
        """Zero was read as none by some releases."""
        found = params(library, output=Output(logprobs=asked, prompt_logprobs=asked))
        assert (found.logprobs, found.prompt_logprobs) == (given_, given_)

    @pytest.mark.parametrize(("asked", "given_"), [(None, 1), (0, 1), (5, 5)])
    def test_samples_are_ranked_by_logprobs(self, library: Library, asked: int | None, given_: int) -> None:
        """The engine sums up only those that it was asked for; beams have sums of their own."""
        output, warm = Output(logprobs=asked), Sampling(temperature=1.0)
        assert params(library, search=Search(width=4), sampling=warm, output=output).logprobs == given_
        beams = params(library, search=Search(width=4, is_beam=True), output=output)
        assert beams.logprobs == (None if asked is None else given_)

    def test_nothing_is_detokenised(self, library: Library) -> None:
        """That would happen in the event loop, for nobody."""
        assert not params(library).detokenize

    def test_a_thinking_budget(self, library: Library) -> None:
        """Zero is one."""
        assert params(library, thinking_tokens=0).thinking_token_budget == 0

    def test_a_prefill_has_no_thinking_budget(self, library: Library) -> None:
        """It makes no thoughts, and its engine may have no reasoning parser, which the library asks for."""
        assert params(library, stage=Stage.PREFILL, thinking_tokens=5).thinking_token_budget is None


SAMPLINGS = st.builds(
    Sampling,
    temperature=st.one_of(st.just(0.0), st.floats(1e-6, 1000)),
    top_k=st.integers(0, 1000),
    top_p=st.floats(0.01, 1.0),
    min_p=st.floats(0, 1),
    repetition_penalty=st.floats(0.01, 100),
    presence_penalty=st.floats(-2, 2),
    frequency_penalty=st.floats(-2, 2),
    seed=st.integers(0, 2**64 - 1),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sampling=SAMPLINGS, least=st.integers(0, 8))
def test_whatever_was_resolved_the_library_takes(library: Library, sampling: Sampling, least: int) -> None:
    """Its own checks refuse nothing that the resolver let through."""
    params(library, sampling=sampling, stop=StopRules(max_tokens=8, min_tokens=least))


def or_edge(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """One of these, an end of its range, or left out."""
    return st.one_of(st.sampled_from([None, 0, 1]), values)


SEVERAL = st.builds(
    SamplingOptions,
    n=st.integers(1, 3),
    best_of=st.sampled_from([None, 2, 3, 4]),
    use_beam_search=st.sampled_from([None, True]),
    temperature=or_edge(st.floats(0, 2)),
    top_k=or_edge(st.integers(-1, 100)),
    top_p=or_edge(st.floats(0, 1)),
    min_p=or_edge(st.floats(0, 1)),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=500)
@given(options=SEVERAL)
def test_several_choices_that_were_resolved_the_library_makes(
    library: Library, options: SamplingOptions
) -> None:
    """Of what leaves nothing to choose it makes one, and calls by that name what the resolver calls so."""
    config = TrtllmConfig(
        model_path=Path("m"), vocab_size=99, context_length=64, arguments={"max_beam_width": 4}
    )
    info = EngineInfo(model="m", context_length=64, max_num_seqs=8, vocab_size=99)
    rules = SpecRules("trtllm", capabilities_of(config), info, capacity=8)
    with suppress(InvalidRequest):
        asked = rules.resolve(GenerateRequest([1], sampling_options=options))
        assert sampling_params(asked, library).best_of == asked.sequences
