"""Stories: what clients, an engine and an operator do to one graph, as plain data that can be kept.

A story is a list of moves; `Player` in `tests.actors.playing` acts them out on a fake clock, and the `Judge`
in `tests.actors.judging` looks at the graph after every one. ``who`` picks among those who are there, modulo
their number.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import Any

from hypothesis import strategies as st

# Most tokens one request says in one step of a story.
STEP_TOKENS = 5


class Kind(Enum):
    """What is asked for."""

    PLAIN = "plain"
    WIDE = "wide"
    STOPS = "stops"
    PROBE = "probe"
    INVALID = "invalid"
    MALFORMED = "malformed"
    GUIDED = "guided"


class Exit(Enum):
    """How a client goes."""

    ABORT = "abort"  # the framework marks the context and calls abort()
    SILENT = "silent"  # the context is marked; the reader notices by itself
    READER = "reader"  # the generator is closed, nothing else
    TWICE = "twice"


class Preparing(Enum):
    """What becomes of a spec that is being prepared."""

    READY = "ready"
    INVALID = "invalid"
    BROKEN = "broken"


class Part(Enum):
    """An actor that has a bug."""

    INTAKE = "intake"
    EXECUTOR = "executor"
    STREAMER = "streamer"
    MONITOR = "monitor"


class Flaw(Enum):
    """What an engine cannot mean."""

    TOKEN = "token"
    CHOICE = "choice"
    NO_REASON = "no reason"
    ERROR_WITHOUT_END = "error without end"
    TOO_MANY = "too many"


@dataclass(frozen=True)
class Ask:
    kind: Kind
    max_tokens: int = 12
    context: int = 0
    has_deadline: bool = False


@dataclass(frozen=True)
class Say:
    who: int
    tokens: int = 1


@dataclass(frozen=True)
class SayAll:
    pass


@dataclass(frozen=True)
class Flood:
    """Every request says so much at once that it is held back, or all but its last word."""


@dataclass(frozen=True)
class EndChoice:
    who: int


@dataclass(frozen=True)
class Finish:
    who: int
    tokens: int = 0


@dataclass(frozen=True)
class Fail:
    who: int


@dataclass(frozen=True)
class Spoil:
    who: int
    flaw: Flaw


@dataclass(frozen=True)
class Prepare:
    how: Preparing


@dataclass(frozen=True)
class Stranger:
    pass


@dataclass(frozen=True)
class RefuseNext:
    pass


@dataclass(frozen=True)
class Read:
    who: int
    chunks: int = 1


@dataclass(frozen=True)
class Sleepy:
    """A reader that waits for its next chunk in a task of its own."""

    who: int


@dataclass(frozen=True)
class Leave:
    who: int
    way: Exit = Exit.ABORT


@dataclass(frozen=True)
class Wait:
    seconds: float


@dataclass(frozen=True)
class Drain:
    move_s: float
    more_s: float


@dataclass(frozen=True)
class Signal:
    """The first begins the ladder of the budgets, any other one ends everybody at once."""


@dataclass(frozen=True)
class Resume:
    pass


@dataclass(frozen=True)
class Die:
    """The engine says that it is dead. This and the next two end their story."""


@dataclass(frozen=True)
class Hang:
    """From here on the engine is silent, whatever it is told."""


@dataclass(frozen=True)
class Crash:
    part: Part


Action = (
    Ask | Say | SayAll | Flood | EndChoice | Finish | Fail | Spoil | Prepare | Stranger | RefuseNext | Read
    | Sleepy | Leave | Wait | Drain | Signal | Resume | Die | Hang | Crash
)  # fmt: skip


@dataclass(frozen=True)
class Move:
    """One action, and how many turns of the loop follow it; None lets everything come to rest."""

    action: Action
    turns: int | None = None


@dataclass(frozen=True)
class Story:
    """The graph, the order of its tasks, and what happens to it."""

    moves: tuple[Move, ...]
    seed: int = 0
    max_live: int = 4
    max_num_seqs: int = 2
    can_pause: bool = True
    is_confirming: bool = True


def _actions(draw_int: Any, choose: Any, seconds: Any) -> list[tuple[int, Any]]:
    """Weights and makers, shared by Hypothesis and the dice."""
    who = draw_int(0, 7)
    return [
        (
            18,
            (
                Ask,
                choose([Kind.PLAIN, Kind.PLAIN, Kind.WIDE, Kind.GUIDED, *Kind]),
                draw_int(1, 30),
                draw_int(0, 3),
                choose([False, False, False, True]),
            ),
        ),
        (14, (Say, who, draw_int(1, STEP_TOKENS))),
        (14, (SayAll,)),
        (3, (Flood,)),
        (4, (EndChoice, who)),
        (7, (Finish, who, draw_int(0, STEP_TOKENS))),
        (1, (Fail, who)),
        (2, (Spoil, who, choose(list(Flaw)))),
        (6, (Prepare, choose([Preparing.READY, *Preparing]))),
        (1, (Stranger,)),
        (1, (RefuseNext,)),
        (18, (Read, who, draw_int(1, 4))),
        (6, (Sleepy, who)),
        (6, (Leave, who, choose(list(Exit)))),
        (6, (Wait, seconds)),
        (1, (Drain, seconds, seconds)),
        (1, (Signal,)),
        (4, (Resume,)),
    ]


ENDINGS: tuple[Action, ...] = (Die(), Hang(), Hang(), Hang(), *(Crash(part) for part in Part))
_SECONDS = (0.0, 0.05, 0.5, 3.0, 12.0, 21.0)


def stories(most_moves: int = 50) -> st.SearchStrategy[Story]:
    """Any story, for Hypothesis to search and to shrink."""
    weighted = _actions(st.integers, st.sampled_from, st.sampled_from(_SECONDS))
    makers = [st.builds(*parts) for weight, parts in weighted for _ in range(weight)]
    turns = st.sampled_from([None, None, 0, 1, 2, 5])
    moves = st.lists(st.builds(Move, st.one_of(makers), turns), max_size=most_moves)
    ending = st.sampled_from([(), (), *((Move(ending),) for ending in ENDINGS)])
    return st.builds(
        Story,
        moves=st.tuples(moves, ending).map(lambda parts: (*parts[0], *parts[1])),
        seed=st.integers(0, 2**16),
        max_live=st.sampled_from([1, 2, 4, 8]),
        max_num_seqs=st.sampled_from([1, 2, 4]),
        can_pause=st.booleans(),
        is_confirming=st.sampled_from([True, True, False]),
    )


def long_story(seed: int, moves: int) -> Story:
    """A story thrown with dice: longer than Hypothesis makes them."""
    dice = random.Random(seed)

    def number(low: int, high: int) -> Any:
        return lambda: dice.randint(low, high)

    def one_of(values: Any) -> Any:
        return lambda: dice.choice(values)

    weighted = _actions(number, one_of, one_of(_SECONDS))
    makers = [parts for weight, parts in weighted for _ in range(weight)]

    def move() -> Move:
        action, *parts = dice.choice(makers)
        return Move(action(*(part() for part in parts)), dice.choice([None, None, 0, 1, 2, 5]))

    return Story(
        moves=(*(move() for _ in range(moves)), *dice.choice([(), *((Move(ending),) for ending in ENDINGS)])),
        seed=seed,
        max_live=dice.choice([2, 4, 8, 16]),
        max_num_seqs=dice.choice([1, 2, 4, 8]),
        can_pause=dice.random() < 0.6,
        is_confirming=dice.random() < 0.8,
    )
