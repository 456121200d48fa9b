"""Where a request runs and which part of it: taken from the request, or refused by name."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.placement import BYPASS, Placement, place
from protocols.engine import EngineCapabilities, EngineInfo
from protocols.errors import InvalidRequest
from protocols.requests import decode_request
from protocols.spec import Stage
from tests.doubles.callers import wire_request

INFO = EngineInfo(model="m", context_length=64, max_num_seqs=8, vocab_size=100, data_parallel_size=4)
HANDED = {"prefill_result": {"disaggregated_params": {"opaque_state": "AAEC"}}}
PROBE = {"_HEALTH_CHECK": True}
LEFT_ALONE = {"annotations": [BYPASS]}


def placed(can: EngineCapabilities | None = None, /, **options: Any) -> Placement:
    """What becomes of one request."""
    request = decode_request(wire_request(**options))
    return place(request, "double", can or EngineCapabilities(), INFO)


def refusal(can: EngineCapabilities | None = None, /, **options: Any) -> InvalidRequest:
    """Why one request is not served."""
    with pytest.raises(InvalidRequest) as refused:
        placed(can, **options)
    return refused.value


def in_role(role: Stage, **more: Any) -> EngineCapabilities:
    """An engine of a worker with this role."""
    return EngineCapabilities(role=role, **more)


class TestStage:
    @pytest.mark.parametrize(
        ("role", "options", "stage"),
        [
            (Stage.WHOLE, {}, Stage.WHOLE),
            (Stage.WHOLE, LEFT_ALONE, Stage.WHOLE),
            (Stage.PREFILL, {}, Stage.PREFILL),
            (Stage.PREFILL, LEFT_ALONE, Stage.PREFILL),
            (Stage.PREFILL, PROBE, Stage.WHOLE),
            (Stage.DECODE, HANDED, Stage.DECODE),
            (Stage.DECODE, {**HANDED, **LEFT_ALONE}, Stage.DECODE),
            (Stage.DECODE, LEFT_ALONE, Stage.WHOLE),
            (Stage.DECODE, PROBE, Stage.WHOLE),
            (Stage.DECODE, {**PROBE, **LEFT_ALONE}, Stage.WHOLE),
        ],
    )
    def test_the_part_of_a_request(self, role: Stage, options: dict[str, Any], stage: Stage) -> None:
        """What the role does, but for probes, and for what a router left to a decode worker alone.

        A client can write that annotation as well: then the prefill was made all the same, and counts.
        """
        assert placed(in_role(role), **options).stage is stage

    def test_a_decode_worker_gets_what_was_handed_over(self) -> None:
        """As it came: the engine reads it."""
        found = placed(in_role(Stage.DECODE), **HANDED)
        assert found.handoff == HANDED["prefill_result"]["disaggregated_params"]

    @pytest.mark.parametrize(
        ("options", "field"),
        [
            ({}, "prefill_result"),
            ({"prefill_result": {}}, "prefill_result.disaggregated_params"),
            ({"prefill_result": {"disaggregated_params": {}}}, "prefill_result.disaggregated_params"),
            ({"prefill_result": {"disaggregated_params": None}}, "prefill_result.disaggregated_params"),
            ({**PROBE, **HANDED}, "prefill_result"),
        ],
    )
    def test_a_decode_worker_without_a_hand_off_says_so(self, options: dict[str, Any], field: str) -> None:
        """It would have to guess the prompt's KV cache. A probe has no use for one."""
        assert refusal(in_role(Stage.DECODE), **options).field == field

    @pytest.mark.parametrize("role", [Stage.WHOLE, Stage.PREFILL])
    def test_who_computes_prompts_takes_none_that_was_computed(self, role: Stage) -> None:
        """A hand-off that is not used would hold memory of another worker for nothing."""
        error = refusal(in_role(role), **HANDED)
        assert error.field == "prefill_result"
        assert "opaque_state" not in str(error)


class TestRank:
    @pytest.mark.parametrize(
        ("role", "routing", "rank"),
        [
            (Stage.WHOLE, {}, None),
            (Stage.WHOLE, {"dp_rank": 0}, 0),
            (Stage.WHOLE, {"dp_rank": 3, "prefill_dp_rank": 1}, 3),
            (Stage.PREFILL, {"dp_rank": 3, "prefill_dp_rank": 1}, 1),
            (Stage.PREFILL, {"dp_rank": 3}, 3),
            (Stage.PREFILL, {"dp_rank": 99, "prefill_dp_rank": 0}, 0),
        ],
    )
    def test_the_rank_that_a_router_chose(
        self, role: Stage, routing: dict[str, int], rank: int | None
    ) -> None:
        """A prefill worker's has a name of its own; the other then belongs to the decode worker."""
        assert placed(in_role(role), routing=routing).rank == rank

    @pytest.mark.parametrize(
        ("role", "name"),
        [(Stage.WHOLE, "dp_rank"), (Stage.PREFILL, "prefill_dp_rank"), (Stage.PREFILL, "dp_rank")],
    )
    @pytest.mark.parametrize("rank", [-1, 4])
    def test_a_rank_that_is_not_there_is_refused(self, role: Stage, name: str, rank: int) -> None:
        """By the name that it came with, never replaced by another."""
        error = refusal(in_role(role), routing={name: rank})
        assert (error.field, error.value) == (f"routing.{name}", rank)

    def test_an_engine_that_keeps_conversations_chooses_for_them(self) -> None:
        """And obeys the router for everything else."""
        can = EngineCapabilities(has_conversations=True, obeys_ranks=False)
        talk = {"agent_context": {"session_id": " s1 "}, "routing": {"dp_rank": 2}}
        assert (placed(can, **talk).rank, placed(can, **talk).conversation_id) == (None, "s1")
        assert placed(can, routing={"dp_rank": 2}).rank == 2

    def test_a_router_can_be_given_the_last_word(self) -> None:
        """The conversation is told as well."""
        can = EngineCapabilities(has_conversations=True)
        found = placed(can, agent_context={"session_id": "s1"}, routing={"dp_rank": 2})
        assert (found.rank, found.conversation_id) == (2, "s1")

    def test_a_rank_is_checked_where_it_is_not_used_too(self) -> None:
        """A wrong one is a mistake of somebody's."""
        can = EngineCapabilities(has_conversations=True, obeys_ranks=False)
        assert (
            refusal(can, agent_context={"session_id": "s"}, routing={"dp_rank": 9}).field == "routing.dp_rank"
        )


class TestConversation:
    @pytest.mark.parametrize("context", [None, {}, {"session_id": None}, {"session_id": " \n"}])
    def test_a_blank_session_is_none(self, context: dict[str, Any] | None) -> None:
        """The engine would refuse it late."""
        assert (
            placed(EngineCapabilities(has_conversations=True), agent_context=context).conversation_id is None
        )

    @pytest.mark.parametrize("session", ["x" * 1025, "\ud800"])
    def test_a_session_is_an_id(self, session: str) -> None:
        """Not a text of any length, and nothing that cannot be sent on."""
        error = refusal(EngineCapabilities(has_conversations=True), agent_context={"session_id": session})
        assert error.field == "agent_context.session_id"

    def test_an_engine_without_conversations_is_told_of_none(self) -> None:
        """Most have none, and the session is for others."""
        assert placed(agent_context={"session_id": "s1"}).conversation_id is None


class TestAdapter:
    def test_one_that_the_engine_has(self) -> None:
        """By its name."""
        assert (
            placed(EngineCapabilities(adapters=frozenset({"a"})), routing={"lora_name": "a"}).adapter == "a"
        )
        assert placed(EngineCapabilities(adapters=frozenset({"a"}))).adapter is None

    @pytest.mark.parametrize(("known", "said"), [({"a", "b"}, "one of a, b"), (set(), "not supported")])
    def test_one_that_it_has_not(self, known: set[str], said: str) -> None:
        """The answer without it would look like the answer with it."""
        error = refusal(EngineCapabilities(adapters=frozenset(known)), routing={"lora_name": "c"})
        assert error.field == "routing.lora_name"
        assert said in error.allowed


class TestPriority:
    @pytest.mark.parametrize(
        ("options", "priority"),
        [
            ({}, 0.0),
            ({"priority": 0.5}, 0.0),
            ({"priority": 1.0}, 0.5),
            ({"priority": 0.0}, -0.5),
            ({"routing": {"priority": 7.0}}, 7.0),
            ({"routing": {"priority": -7.0}, "priority": 1.0}, -7.0),
            ({"routing": {"priority": 0.0}, "priority": 1.0}, 0.0),
        ],
    )
    def test_0_is_what_a_request_has_that_names_none(self, options: dict[str, Any], priority: float) -> None:
        """A caller of TensorRT-LLM's scale who asks for less than its middle is not put before the others."""
        assert placed(**options).priority == priority

    @pytest.mark.parametrize("value", [math.nan, -0.1, 1.1, math.inf])
    def test_a_callers_is_between_0_and_1(self, value: float) -> None:
        """As the engine has it."""
        assert refusal(priority=value).field == "priority"

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_a_routers_is_a_number(self, value: float) -> None:
        """What has no place in the order is refused."""
        assert refusal(routing={"priority": value}).field == "routing.priority"


class TestSalt:
    @pytest.mark.parametrize(
        ("routers", "clients", "salt"),
        [
            (None, None, None),
            ("r", "c", "r"),
            (None, "c", "c"),
            ("", "c", "c"),
            ("", "", None),
        ],
    )
    def test_the_routers_goes_before_the_clients(
        self, routers: str | None, clients: str | None, salt: str | None
    ) -> None:
        """An empty one is none, as with Dynamo's own worker."""
        options = {"routing": {"cache_salt": routers}, "extra_args": {"nvext": {"cache_salt": clients}}}
        assert placed(**options).cache_salt == salt

    @pytest.mark.parametrize("extra", [{}, {"nvext": None}, {"nvext": []}, {"nvext": {}}])
    def test_no_salt_of_the_client(self, extra: dict[str, Any]) -> None:
        """In whatever form there is none."""
        assert placed(extra_args=extra).cache_salt is None

    @pytest.mark.parametrize("salt", [5, ["s"], {"a": 1}, False, "\ud800", "é" * 513])
    def test_a_clients_salt_that_is_none(self, salt: object) -> None:
        """It comes unchecked with the extras."""
        assert refusal(extra_args={"nvext": {"cache_salt": salt}}).field == "extra_args.nvext.cache_salt"

    @pytest.mark.parametrize("longest", [1024, 256, 1])
    def test_a_salt_is_as_long_as_the_engine_takes(self, longest: int) -> None:
        """In bytes; a longer one is the caller's mistake, and no failure of the engine."""
        can = EngineCapabilities(longest_salt=longest)
        whole, more = "s" * longest, "s" * (longest - 1) + "é"
        assert placed(can, routing={"cache_salt": whole}).cache_salt == whole
        refused = refusal(can, routing={"cache_salt": more})
        assert (refused.field, refused.allowed) == ("routing.cache_salt", f"at most {longest} bytes")


@given(
    role=st.sampled_from(Stage),
    options=st.fixed_dictionaries(
        {},
        optional={
            "routing": st.fixed_dictionaries(
                {},
                optional={
                    "dp_rank": st.integers(-2, 6),
                    "prefill_dp_rank": st.integers(-2, 6),
                    "priority": st.floats(),
                    "lora_name": st.sampled_from(["a", "b"]),
                    "cache_salt": st.text(max_size=4),
                },
            ),
            "prefill_result": st.sampled_from([{}, {"disaggregated_params": {}}, HANDED["prefill_result"]]),
            "annotations": st.sampled_from([[], [BYPASS], ["other"]]),
            "agent_context": st.fixed_dictionaries({"session_id": st.none() | st.text(max_size=4)}),
            "priority": st.floats(),
            "_HEALTH_CHECK": st.booleans(),
        },
    ),
)
def test_any_request_is_placed_soundly_or_refused(role: Stage, options: dict[str, Any]) -> None:
    """A hand-off goes with a decode and with nothing else; ranks exist; the order stays an order."""
    can = EngineCapabilities(role=role, has_conversations=True, adapters=frozenset({"a"}))
    try:
        found = placed(can, **options)
    except InvalidRequest as refused:
        outcome = refused.allowed
    else:
        outcome = "placed"
        assert (found.handoff is not None) == (found.stage is Stage.DECODE)
        assert found.stage in (role, Stage.WHOLE)
        assert found.rank is None or 0 <= found.rank < INFO.data_parallel_size
        assert math.isfinite(found.priority)
        assert found.cache_salt is None or found.cache_salt
    assert outcome
