"""Promises of the outbox: what one request is owed, in order, once, and its last word for certain."""

from __future__ import annotations

import tracemalloc
from itertools import count

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.outbox import Outbox, Terminal
from actors.wakeup import EventWakeup
from protocols.errors import EngineShutdown, GenerationFailed, InternalError, ReaderStalled
from protocols.steps import Delta, EngineId, FinishReason
from tests.doubles.callers import Reader
from tests.doubles.scheduling import run_seeded

ID = EngineId(1)
CAP = 4
STOP = Terminal(finish_reason=FinishReason.STOP, prompt_tokens=3, cached_tokens=2)

GIVEN_UP = Terminal(error=ReaderStalled(30.0))


class Box:
    """An outbox, its clock set by hand, and a count of its calls for flow control."""

    def __init__(self, bound_tokens: int = 100, chunk_tokens: int = CAP) -> None:
        self.now_s = 0.0
        self.flows: list[bool] = []
        self.outbox = Outbox(EventWakeup(), lambda: self.now_s, chunk_tokens, self._on_flow)
        self.outbox.bound_tokens = bound_tokens

    def _on_flow(self) -> None:
        self.flows.append(self.outbox.is_held)

    def put(self, *token_ids: int, index: int = 0) -> None:
        self.outbox.put(Delta(ID, list(token_ids), index), self.now_s)

    def read(self, chunks: int | None = None) -> Reader:
        """Take so many chunks, or everything; nothing here may need to wait."""
        reader = Reader(self.outbox)

        async def take() -> None:
            with anyio.fail_after(0):
                for _ in range(chunks or 0):
                    await reader.read()
                if chunks is None:
                    await reader.read_to_end()

        run_seeded(take)
        return reader


@pytest.fixture
def box() -> Box:
    return Box()


class TestOrderAndMerging:
    def test_an_answer_that_nobody_reads_is_kept_small(self) -> None:
        """An engine that cannot be held says all of it, a token at a time: no object is kept for each."""
        box, many = Box(bound_tokens=10**9), 10_000
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for token in range(1000, 1000 + many):
                box.put(token)
            kept = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert kept / many < 60
        box.outbox.finish(STOP)
        assert box.read().tokens == list(range(1000, 1000 + many))

    @given(
        puts=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1)), min_size=1, max_size=12),
        taken=st.integers(0, 4),
        cap=st.integers(1, 4),
    )
    def test_what_is_told_of_chunks_is_what_a_reader_gets(
        self, puts: list[tuple[int, int]], taken: int, cap: int
    ) -> None:
        """Whatever waits, in whatever pieces, wherever the reader stands: tokens keep order and choice."""
        box, numbers = Box(chunk_tokens=cap), count(1000)
        said = [([next(numbers) for _ in range(size)], index) for size, index in puts]
        for token_ids, index in said:
            box.put(*token_ids, index=index)
        taken = min(taken, box.outbox.chunks)
        first = box.read(taken).chunks if taken else []
        box.outbox.finish(STOP)
        told = box.outbox.chunks
        rest = box.read().chunks
        assert told == len(first) + len(rest)
        found: dict[int, list[int]] = {0: [], 1: []}
        for chunk in (*first, *rest):
            found[chunk["index"]] += chunk["token_ids"]
        for index, tokens in found.items():
            assert tokens == [token for token_ids, of in said if of == index for token in token_ids]

    def test_tokens_come_out_in_the_order_they_went_in(self, box: Box) -> None:
        """What was put first is delivered first."""
        for token in range(10):
            box.put(token)
        box.outbox.finish(STOP)
        assert box.read().tokens == list(range(10))

    def test_what_waits_is_merged_up_to_the_cap(self, box: Box) -> None:
        """A reader that is behind gets full chunks, none of them over the cap."""
        for token in range(10):
            box.put(token)
        box.outbox.finish(STOP)
        assert [len(chunk["token_ids"]) for chunk in box.read().chunks] == [4, 4, 2]

    def test_a_delta_is_never_split(self, box: Box) -> None:
        """Merging stops before the delta that would pass the cap; one larger than the cap goes out whole."""
        box.put(1, 2, 3)
        box.put(4, 5)
        box.put(*range(6, 12))
        box.outbox.finish(STOP)
        assert [chunk["token_ids"] for chunk in box.read().chunks] == [[1, 2, 3], [4, 5], list(range(6, 12))]

    def test_only_the_same_choice_is_merged(self, box: Box) -> None:
        """Tokens of two choices never share a chunk, and their order among each other is kept."""
        box.put(1, index=0)
        box.put(2, index=1)
        box.put(3, index=1)
        box.put(4, index=0)
        chunks = box.read(3).chunks
        assert [(chunk["index"], chunk["token_ids"]) for chunk in chunks] == [(0, [1]), (1, [2, 3]), (0, [4])]

    def test_a_reader_never_waits_in_order_to_merge(self, box: Box) -> None:
        """One waiting token is a chunk at once, however much room is left."""
        box.put(1)
        assert box.read(1).chunks == [{"token_ids": [1], "index": 0}]

    def test_merging_leaves_the_engines_delta_alone(self, box: Box) -> None:
        """A chunk grown from several deltas is a list of its own."""
        first = Delta(ID, [1])
        box.outbox.put(first, 0.0)
        box.put(2)
        box.read(1)
        assert first.token_ids == [1]

    def test_an_empty_delta_makes_no_chunk(self, box: Box) -> None:
        """Nothing is delivered for nothing."""
        box.put()
        box.put(1)
        box.outbox.finish(STOP)
        assert len(box.read().chunks) == 1


class TestTerminal:
    def test_the_last_word_rides_on_the_last_tokens(self, box: Box) -> None:
        """Tokens that arrive with the finish are delivered with it, and the usage is exact (S10)."""
        box.put(5, 6, 7)
        box.put(8, 9)
        box.outbox.finish(STOP)
        chunks = box.read().chunks
        assert [chunk["token_ids"] for chunk in chunks] == [[5, 6, 7], [8, 9]]
        assert "finish_reason" not in chunks[0]
        assert chunks[1]["finish_reason"] == "stop"
        assert chunks[1]["completion_usage"] == {
            "prompt_tokens": 3,
            "completion_tokens": 5,
            "total_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 2},
        }

    def test_a_reader_that_took_everything_gets_an_empty_last_chunk(self, box: Box) -> None:
        """The end is always said, also when no token is left to carry it."""
        box.put(1)
        box.read(1)
        box.outbox.finish(STOP)
        last = box.read().chunks[0]
        assert last["token_ids"] == []
        assert last["finish_reason"] == "stop"
        assert last["completion_usage"]["completion_tokens"] == 1

    def test_the_last_word_of_another_choice_has_a_chunk_of_its_own(self) -> None:
        """A terminal never gets the index of tokens that are not its own."""
        box = Box()
        box.put(1, index=0)
        box.outbox.finish(Terminal(finish_reason=FinishReason.EOS, index=1))
        chunks = box.read().chunks
        assert [(chunk["index"], chunk.get("finish_reason")) for chunk in chunks] == [(0, None), (1, "eos")]

    def test_the_stop_reason_comes_with_the_last_word(self, box: Box) -> None:
        """What stopped it is named when the engine named it."""
        box.outbox.finish(Terminal(finish_reason=FinishReason.STOP, stop_reason=7))
        assert box.read().chunks[0]["stop_reason"] == 7

    def test_an_error_comes_after_all_owed_tokens(self, box: Box) -> None:
        """Tokens that were put before the failure are delivered, then the error is raised."""
        for token in range(6):
            box.put(token)
        failure = GenerationFailed("no")
        box.outbox.finish(Terminal(error=failure))
        reader = box.read()
        assert reader.tokens == list(range(6))
        assert reader.error is failure
        assert reader.finish_reasons == []

    def test_the_first_to_write_the_last_word_wins(self, box: Box) -> None:
        """A second terminal changes nothing."""
        box.outbox.finish(STOP)
        box.outbox.finish(Terminal(error=EngineShutdown("late")), drop_waiting=True)
        assert box.read().finish_reasons == ["stop"]

    def test_nothing_is_owed_after_the_last_word(self, box: Box) -> None:
        """Tokens that come later are nobody's."""
        box.outbox.finish(STOP)
        box.put(1)
        assert box.read().tokens == []

    def test_dropping_counts_only_what_was_taken(self, box: Box) -> None:
        """A reader that left is charged for what it took, not for what lay there."""
        for token in range(CAP + 3):
            box.put(token)
        assert len(box.read(1).tokens) == CAP
        box.outbox.finish(Terminal(finish_reason=FinishReason.CANCELLED), drop_waiting=True)
        last = box.read().chunks[-1]
        assert last["token_ids"] == []
        assert last["completion_usage"]["completion_tokens"] == CAP
        assert box.outbox.waiting_tokens == 0

    def test_reading_past_the_end_is_a_bug(self, box: Box) -> None:
        """The last word is given out once."""
        box.outbox.finish(STOP)
        box.read()

        async def take() -> None:
            await box.outbox.take()

        with pytest.raises(InternalError):
            run_seeded(take)

    def test_a_terminal_without_content_is_a_bug(self, box: Box) -> None:
        """Neither a finish reason nor an error is no last word."""
        box.outbox.finish(Terminal())

        async def take() -> None:
            await box.outbox.take()

        with pytest.raises(InternalError):
            run_seeded(take)


class TestAbandoned:
    def test_nothing_waits_for_a_reader_that_was_given_up(self, box: Box) -> None:
        """What it left lying is gone."""
        for token in range(10):
            box.put(token)
        box.outbox.finish(STOP)
        box.read(1)
        box.outbox.abandon(GIVEN_UP)
        assert box.outbox.waiting_tokens == 0
        assert box.outbox.is_abandoned

    def test_one_that_comes_back_gets_an_error_and_no_good_end(self, box: Box) -> None:
        """An answer without its last tokens never looks complete."""
        for token in range(10):
            box.put(token)
        box.outbox.finish(STOP)
        assert box.read(1).tokens == [0, 1, 2, 3]
        box.outbox.abandon(GIVEN_UP)
        back = box.read()
        assert (back.tokens, back.finish_reasons, back.error) == ([], [], GIVEN_UP.error)

    def test_one_that_had_its_last_word_has_had_it(self, box: Box) -> None:
        """Nothing is said after the end."""
        box.outbox.finish(STOP)
        box.read()
        box.outbox.abandon(GIVEN_UP)
        assert box.outbox.terminal is STOP


class TestFlow:
    def test_held_at_the_bound_and_released_at_half(self) -> None:
        """One call when the bound is reached, one when half of it is left, none in between."""
        box = Box(bound_tokens=8, chunk_tokens=1)
        for token in range(7):
            box.put(token)
        assert box.flows == []
        box.put(7)
        box.put(8)
        assert box.flows == [True]
        box.read(4)
        assert box.flows == [True]
        box.read(1)
        assert box.flows == [True, False]

    def test_a_request_can_be_held_again(self) -> None:
        """Hysteresis has no memory beyond the bound."""
        box = Box(bound_tokens=2, chunk_tokens=1)
        for _ in range(3):
            box.put(1)
            box.put(2)
            box.read(2)
        assert box.flows == [True, False] * 3


class TestStallClock:
    def test_waiting_is_counted_from_the_first_unread_token(self, box: Box) -> None:
        """A second put does not start the clock again."""
        box.now_s = 5.0
        box.put(1)
        box.now_s = 9.0
        box.put(2)
        assert box.outbox.waiting_since_s == 5.0

    def test_reading_starts_the_clock_again(self, box: Box) -> None:
        """A slow reader that reads is not a stalled one."""
        for token in range(CAP + 1):
            box.put(token)
        box.now_s = 7.0
        box.read(1)
        assert box.outbox.waiting_since_s == 7.0

    def test_the_end_starts_it_and_each_step_of_the_reader_starts_it_again(self, box: Box) -> None:
        """Also where no token waits: a last word that nobody takes lies there since the end."""
        box.now_s = 3.0
        box.outbox.finish(STOP)
        assert box.outbox.waiting_since_s == 3.0
        box.now_s = 4.0
        box.read()
        assert box.outbox.waiting_since_s == 4.0

    def test_tokens_that_wait_at_the_end_keep_their_time(self, box: Box) -> None:
        """The end gives nobody a second stall time-out."""
        box.now_s = 3.0
        box.put(1)
        box.now_s = 9.0
        box.outbox.finish(STOP)
        assert box.outbox.waiting_since_s == 3.0

    def test_nothing_waits_when_everything_is_read(self, box: Box) -> None:
        """A reader that waits for the engine cannot stall."""
        box.put(1)
        box.read(1)
        assert box.outbox.waiting_since_s is None


@pytest.mark.anyio
class TestWaking:
    async def test_a_sleeping_reader_wakes_for_tokens(self, box: Box) -> None:
        """The first token of a silence is delivered at once."""
        reader = Reader(box.outbox)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reader.read)
            await anyio.wait_all_tasks_blocked()
            box.put(1)
        assert reader.tokens == [1]

    async def test_a_sleeping_reader_wakes_for_the_last_word(self, box: Box) -> None:
        """An end without tokens wakes as well."""
        reader = Reader(box.outbox)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reader.read)
            await anyio.wait_all_tasks_blocked()
            box.outbox.finish(STOP)
        assert reader.finish_reasons == ["stop"]

    async def test_a_reader_that_has_left_sleeps_until_the_last_word(self, box: Box) -> None:
        """Tokens do not end its wait; the terminal does."""
        ended = False

        async def wait() -> None:
            nonlocal ended
            await box.outbox.wait_terminal()
            ended = True

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            box.put(1)
            await anyio.wait_all_tasks_blocked()
            assert not ended
            box.outbox.finish(STOP)
        assert ended

    async def test_a_cancelled_reader_loses_no_token(self, box: Box) -> None:
        """Giving up while nothing is there leaves everything to the next reader."""
        with anyio.move_on_after(1):
            await box.outbox.take()
        box.put(1)
        reader = Reader(box.outbox)
        await reader.read()
        assert reader.tokens == [1]

    async def test_cancelled_after_the_wake_up_the_token_still_waits(self, box: Box) -> None:
        """The race between a token and a cancel is never a lost token."""
        async with anyio.create_task_group() as tasks:
            reader = Reader(box.outbox)
            tasks.start_soon(reader.read)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
            box.put(1)
        rest = Reader(box.outbox)
        if not reader.tokens:
            await rest.read()
        assert reader.tokens + rest.tokens == [1]


Actions = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 2), st.integers(0, 6)),
        st.tuples(st.just("read"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(
    actions=Actions, bound=st.integers(1, 12), cap=st.integers(1, 6), fails=st.booleans(), drops=st.booleans()
)
@example(actions=[("put", 0, 1), ("put", 1, 1)], bound=1, cap=4, fails=False, drops=True)
def test_any_mix_of_puts_and_reads_delivers_every_token_once_and_in_order(
    actions: list[tuple[str, int, int]], bound: int, cap: int, fails: bool, drops: bool
) -> None:
    """Per choice: what comes out is what went in, minus what a leaving reader dropped; one last word."""
    box = Box(bound, cap)
    given_out: list[tuple[int, int]] = []
    token = 0

    async def play() -> Reader:
        nonlocal token
        reader = Reader(box.outbox)
        for action, index, size in actions:
            if action == "put":
                box.put(*range(token, token + size), index=index)
                given_out.extend((index, number) for number in range(token, token + size))
                token += size
            elif box.outbox.waiting_tokens:
                await reader.read()
            assert box.outbox.waiting_tokens + box.outbox.taken_tokens == len(given_out)
            assert box.outbox.is_held or box.outbox.waiting_tokens < bound
        taken = box.outbox.taken_tokens
        terminal = Terminal(error=EngineShutdown("x")) if fails else STOP
        box.outbox.finish(terminal, drop_waiting=drops)
        foretold = box.outbox.chunks
        await reader.read_to_end()
        assert foretold == box.outbox.chunks == len(reader.chunks)
        assert box.outbox.taken_tokens == (taken if drops else len(given_out))
        return reader

    reader = run_seeded(play)
    delivered = [(chunk["index"], number) for chunk in reader.chunks for number in chunk["token_ids"]]
    assert delivered == given_out[: len(delivered)]
    assert drops or delivered == given_out
    assert reader.terminals == 1
    assert box.flows == [bool(place % 2 == 0) for place in range(len(box.flows))]
