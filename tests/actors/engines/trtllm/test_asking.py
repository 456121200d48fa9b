"""The keywords of a request: what is said only where it says something, and who goes first."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.trtllm.config import TrtllmConfig
from actors.engines.trtllm.requests.asking import Asking, check_library, priority_of
from protocols.errors import EngineStartError
from protocols.spec import Output, Search, Stage, StopRules
from tests.actors.engines.trtllm.scripted import spec

if TYPE_CHECKING:
    from actors.engines.trtllm.library import Library
    from protocols.spec import GenerationSpec

# In bytes, of the library.
LONGEST_SALT = 256
PRIORITIES = {"scheduler_config": {"waiting_queue_policy": "priority"}}


def keywords(library: Library, asked: GenerationSpec, **settings: Any) -> dict[str, Any]:
    """Of a worker with these settings; it hands requests over under the id 77."""
    config = TrtllmConfig(model_path=Path("model"), vocab_size=100, context_length=64, **settings)
    return Asking(library, config, lambda: 77).keywords(asked)


def test_a_plain_request_says_nothing_that_it_need_not(library: Library) -> None:
    """Names have changed between releases: what is not said cannot be wrong."""
    assert keywords(library, spec()).keys() == {"inputs", "sampling_params", "streaming"}


def test_who_wants_logprobs_of_a_prompt_shares_it_with_nobody(library: Library) -> None:
    """Not with one's own tenant either, nor with the same request when it is made again."""
    asked = spec(cache_salt="tenant", output=Output(prompt_logprobs=0))
    salts = {keywords(library, asked)["cache_salt"] for _ in range(3)}
    assert len(salts) == 3
    assert all(len(salt.encode()) <= LONGEST_SALT for salt in salts)
    assert "tenant" not in salts
    others = spec(cache_salt="tenant", output=Output(logprobs=0))
    assert keywords(library, others)["cache_salt"] == "tenant"


class TestPriority:
    def test_a_probe_is_first(self) -> None:
        """Behind a full queue it would not be answered in time, and a worker that is only busy be ended."""
        probe = spec(is_probe=True)
        assert priority_of(probe) == 1.0
        assert priority_of(probe) > priority_of(spec(priority=1e9))

    def test_a_probe_does_not_ask_for_its_own_priority(self) -> None:
        """Whatever it came with."""
        assert priority_of(spec(is_probe=True, priority=-5.0)) == 1.0

    @given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=5))
    def test_any_number_keeps_its_place(self, wished: list[float]) -> None:
        """On the library's scale, in the same order, none before a probe or below its least."""
        found = [priority_of(spec(priority=priority)) for priority in sorted(wished)]
        assert all(0 <= before <= after <= 1 for before, after in pairwise(found))

    def test_who_wishes_nothing_is_in_the_middle(self) -> None:
        """So that others can come before and behind."""
        assert priority_of(spec()) == 0.5
        assert priority_of(spec(priority=1.0)) == 0.75
        assert priority_of(spec(priority=-1.0)) == 0.25

    def test_an_engine_whose_queue_knows_none_is_told_none(self, library: Library) -> None:
        """It would refuse or ignore it."""
        assert "priority" not in keywords(library, spec(priority=2.0))
        found = keywords(library, spec(is_probe=True), arguments=PRIORITIES)
        assert found["priority"] == 1.0


class TestWhere:
    @pytest.mark.parametrize("rank", [0, 3])
    def test_a_rank_is_an_order(self, library: Library, rank: int) -> None:
        """The router has counted on the blocks that lie there; rank 0 is one, too."""
        found = keywords(library, spec(rank=rank))["scheduling_params"]
        assert (found.attention_dp_rank, found.attention_dp_relax) == (rank, False)

    def test_a_conversation(self, library: Library) -> None:
        """By its name."""
        found = keywords(library, spec(conversation_id="c"))["conversation_params"]
        assert found.conversation_id == "c"

    def test_adapters_are_numbered_by_their_names(self, library: Library, tmp_path: Path) -> None:
        """From 1, and the same on every worker, in whatever order its operator lists them."""
        folders = [tmp_path / "b" / "x", tmp_path / "a" / "y"]
        for folder in folders:
            folder.mkdir(parents=True)
        for listed in (folders, folders[::-1]):
            settings = {"lora_config": {"lora_dir": [str(folder) for folder in listed]}}
            found = keywords(library, spec(adapter="y"), arguments=settings)["lora_request"]
            assert (found.lora_name, found.lora_int_id, found.lora_path) == ("y", 2, str(folders[1]))

    def test_a_search_does_not_stream(self, library: Library) -> None:
        """What is best is known at the end."""
        assert keywords(library, spec())["streaming"] is True
        assert keywords(library, spec(n=2, search=Search(width=4, is_beam=True)))["streaming"] is False


class TestStages:
    def test_a_prefill_has_an_id_of_its_own(self, library: Library) -> None:
        """By which the decode worker finds its cache."""
        found = keywords(library, spec(stage=Stage.PREFILL), role=Stage.PREFILL)["disaggregated_params"]
        assert (found.request_type, found.disagg_request_id) == ("context_only", 77)

    def test_a_decode_hands_on_what_it_got(self, library: Library) -> None:
        """As its preparer read it."""
        handoff = object()
        found = keywords(library, spec(stage=Stage.DECODE, handoff=handoff), role=Stage.DECODE)
        assert found["disaggregated_params"] is handoff

    @pytest.mark.parametrize("role", [Stage.PREFILL, Stage.DECODE])
    def test_a_worker_with_a_part_says_that_it_does_all(self, library: Library, role: Stage) -> None:
        """A probe, or what the router left to it; a worker without a part need not say so."""
        assert keywords(library, spec(), role=role)["disaggregated_params"] is not None
        assert "disaggregated_params" not in keywords(library, spec())


class TestHoldingBack:
    LATE = StopRules(max_tokens=9, min_tokens=3, stop_token_ids=frozenset({7}))

    def test_ids_that_come_too_early_are_held_back_in_the_engine(self, library: Library) -> None:
        """Behind the request's own processors, which may not bring them back."""
        own = object()
        config = TrtllmConfig(model_path=Path("model"), vocab_size=100, context_length=64)
        asking = Asking(library, config, None)
        found = asking.keywords(spec(stop=self.LATE), own)["sampling_params"].logits_processor
        assert found[0] is own
        assert len(found) == 2

    def test_an_engine_that_guesses_ahead_is_given_none(self, library: Library) -> None:
        """It calls none: there the driver alone sees to them."""
        drafts = {"arguments": {"speculative_config": {"decoding_type": "MTP"}}}
        assert keywords(library, spec(stop=self.LATE), **drafts)["sampling_params"].logits_processor is None


class WithoutConversations:
    """A release that is older than them."""

    version = "1.2.0"
    ConversationParams = None


def test_a_release_that_knows_no_conversations_is_refused() -> None:
    """At the start, with what to do; who wants none needs none."""
    affine = {"attention_dp_config": {"kv_cache_routing_conversation_affinity": True}}
    config = TrtllmConfig(model_path=Path("m"), vocab_size=9, context_length=9, arguments=affine)
    old: Any = WithoutConversations()
    with pytest.raises(EngineStartError, match=r"1\.2\.0 knows no conversations"):
        check_library(old, config)
    check_library(old, TrtllmConfig(model_path=Path("m"), vocab_size=9, context_length=9))
