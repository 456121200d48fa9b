"""Whatever clients, the engine and the operator do, in whatever order: the promises hold after every move."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import example, given, settings

from tests.actors.playing import Player
from tests.actors.stories import (
    Ask,
    Crash,
    Drain,
    Exit,
    Fail,
    Finish,
    Flood,
    Hang,
    Kind,
    Leave,
    Move,
    Part,
    Say,
    SayAll,
    Signal,
    Story,
    Wait,
    long_story,
    stories,
)

# `make test` plays these; HYPOTHESIS_PROFILE=fuzz plays twenty times as many, and others in every run.
IS_FUZZING = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
LONG_STORIES = range(320) if IS_FUZZING else range(16)


# Found by a long story: the reader goes while the end of its request is already on its way to it. What was
# reserved for it stayed reserved for ever.
READER_GOES_AS_THE_END_COMES = Story(
    moves=(Move(Ask(Kind.PLAIN)), Move(Say(0, 2), 0), Move(Finish(0, 1), 1), Move(Leave(0, Exit.READER)))
)


# Breaks that were made by hand and took the player longest to find: while every reader sleeps no step is
# owed, and then the abort of such a request is.
ALL_READERS_SLEEP = Story(
    moves=(
        Move(Ask(Kind.PLAIN, 30)),
        Move(Finish(0)),
        Move(Ask(Kind.PLAIN, 30)),
        Move(Flood()),
        Move(Wait(12.0)),
    )
)
HUNG_WHILE_ALL_READERS_SLEEP = replace(ALL_READERS_SLEEP, moves=(*ALL_READERS_SLEEP.moves, Move(Hang())))

# What misled the judge. A probe that the engine's step answers ends before the streamer has seen the step. An
# engine whose only words were the confirmation of an abort has not shown that it computes anything.
PROBE_ANSWERED_BY_A_STEP = Story(
    moves=(Move(Ask(Kind.PLAIN)), Move(Ask(Kind.PROBE)), Move(SayAll(), 1)), seed=1, max_num_seqs=1
)
HUNG_AFTER_AN_ABORT = Story(
    moves=(
        Move(Ask(Kind.PLAIN, 1)),
        Move(Leave(0, Exit.ABORT)),
        Move(Ask(Kind.PLAIN, 1)),
        Move(Finish(0, 0)),
        Move(Hang()),
    ),
    max_live=1,
    can_pause=False,
    is_confirming=False,
)

# Found by a long story: the streamer dies, and the executor finds the lane to it closed. That was told as
# a second cause of death.
STREAMER_DIES_IN_FRONT_OF_A_STEP = Story(
    moves=(Move(Ask(Kind.WIDE, 18), 5), Move(Fail(0), 2), Move(Crash(Part.STREAMER))),
    seed=218,
    max_live=16,
    max_num_seqs=8,
    can_pause=False,
)


@pytest.mark.timeout(0 if IS_FUZZING else 120)
@given(story=stories())
@example(story=READER_GOES_AS_THE_END_COMES)
@example(story=ALL_READERS_SLEEP)
@example(story=HUNG_WHILE_ALL_READERS_SLEEP)
@example(story=STREAMER_DIES_IN_FRONT_OF_A_STEP)
@example(story=PROBE_ANSWERED_BY_A_STEP)
@example(story=HUNG_AFTER_AN_ABORT)
@settings(max_examples=10_000 if IS_FUZZING else 500)
def test_any_short_story(story: Story) -> None:
    """Searched and shrunk by Hypothesis."""
    Player(story).play()


@pytest.mark.parametrize("seed", LONG_STORIES)
def test_any_long_story(seed: int) -> None:
    """Thrown with dice, hundreds of moves on one graph, virtual hours long."""
    Player(long_story(seed, moves=400)).play()


@pytest.mark.parametrize("use_uvloop", [False, True])
@pytest.mark.parametrize("seed", range(100, 104))
def test_any_story_without_waits_on_the_loops_of_the_service(seed: int, use_uvloop: bool) -> None:
    """The same promises where tasks run in another order and wake up by bare futures."""
    story = long_story(seed, moves=300)
    moves = tuple(move for move in story.moves if not isinstance(move.action, Wait | Drain | Signal | Hang))
    Player(replace(story, moves=moves)).play_on_asyncio(use_uvloop=use_uvloop)
