"""What changes one sequence's logits beside the sampling options: its logits processors and its grammar.

Both are foreign code. They run on side lanes, processors on a copy of the sequence's own row, so that
they can neither hold up nor touch a neighbour.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from actors.engines.foreign.processors import Processor
from actors.engines.foreign.steering_failed import SteeringFailed, TooCostly
from actors.engines.torch.grammars.matcher import GrammarState
from actors.engines.torch.lanes import Lanes, Place
from protocols.bounds import Bound

# A request whose processor or grammar does not answer for this long is failed.
GIVE_UP_S = 10.0

_GRAMMAR = "the grammar"

T = TypeVar("T")


class Steering:
    """Of one sequence. Only the engine's thread calls it.

    For every token: `begin`, `wait`; then `finish` at once, or `keep` and `finish` in a later step, when
    nothing is running any more. Behind it: `follow`, `wait`, and `followed`, at once or in a later step;
    then `prefetch` and `begin_mask`. When the sequence ends, whatever the reason: `leave`.

    ``processors``: as the spec lists them. ``grammar``: the state of its constraint, None without one.
    """

    def __init__(self, lanes: Lanes, processors: list[Processor], grammar: GrammarState | None) -> None:
        self._clock = lanes.clock
        self._processors = processors
        self._grammar = grammar
        names = tuple(processor.name for processor in processors)
        self._making = Place(lanes.processors, names)
        self._changing = Place(lanes.processors, names)
        # Never both at once: a grammar is used by one thread at a time.
        self._masking = Place(lanes.masks, (_GRAMMAR,))
        self._following = Place(lanes.masks, (_GRAMMAR,))
        # Held by whoever makes or calls the instances: the first call may come while they are being made.
        self._instances = threading.Lock()
        self._row: Tensor | None = None
        self._own: Tensor | None = None
        # The processors' own list, so that the sequence's is never in foreign hands.
        self._tokens: list[int] = []
        self._is_complete = False
        self._begun_s = 0.0
        self._on_bound = lanes.on_bound
        self._is_known_late = False

    def prepare(self) -> None:
        """Before the first step: the instances, which may have to load something, and the first mask."""
        if self._processors:
            self._making.submit(self._make, is_apart=True)
        self.prefetch()
        self.begin_mask()

    def prefetch(self) -> None:
        """The next mask, which is wanted soon."""
        if self._grammar is not None:
            self._masking.submit(self._grammar.fill_mask)

    def begin_mask(self) -> None:
        """Begin with it, and with those of all others, while the model computes."""
        self._masking.begin()

    def begin(self, row: Tensor, tokens: list[int]) -> None:
        """Begin with a row ``[vocabulary]``; ``tokens`` are prompt and output so far."""
        self._row = row
        self._begun_s = self._clock()
        self._is_known_late = False
        if self._processors:
            # The same memory for every token: fresh memory of this size is paid for in page faults.
            self._own = changed = row.clone() if self._own is None else self._own.copy_(row)
            self._row = changed
            self._tokens += tokens[len(self._tokens) :]
            self._changing.submit(lambda: self._change(changed), is_apart=self._making.is_running)

    def wait(self, until_s: float) -> None:
        """Until what was begun is done, or late; at the latest until then (monotonic seconds)."""
        for place in (self._changing, self._masking, self._following):
            place.wait(until_s)

    @property
    def is_running(self) -> bool:
        """Whether something that was begun is not done yet."""
        return self._changing.is_running or self._masking.is_running or self._following.is_running

    def count_late(self) -> None:
        """The step goes on without it. Counted once for what was begun last."""
        if not self._is_known_late:
            self._is_known_late = True
            self._on_bound(Bound.STEP_WAIT)

    def keep(self) -> None:
        """It is late, and the row that `begin` was given will be used for something else."""
        self.count_late()
        if not self._processors and self._row is not None:
            self._row = self._row.clone()

    def look(self) -> None:
        """It is late: see to it that it need not wait for others."""
        self._changing.look()
        self._masking.look()

    @property
    def is_hopeless(self) -> bool:
        """Whether it has been running for so long that nobody should wait any more."""
        return self.is_running and self._clock() - self._begun_s > GIVE_UP_S

    def give_up(self) -> str:
        """Interrupt what is running. Why, in words."""
        culprit = self._title if self._changing.is_running else _GRAMMAR
        self._on_bound(Bound.FOREIGN_TIME)
        self.leave()
        return f"{culprit} did not return within {GIVE_UP_S:g} s"

    def leave(self) -> None:
        """Nobody wants anything of it any more: interrupt what is running, and begin nothing. Idempotent."""
        for place in (self._making, self._changing, self._masking, self._following):
            place.leave()

    def finish(self) -> Tensor:
        """The changed row; nothing is running. With a grammar alone it is the one that `begin` was given.

        Raises SteeringFailed when a processor or the grammar failed.
        """
        row, self._row = self._row, None
        assert row is not None
        for culprit, error in ((self._title, self._changing.take()), (_GRAMMAR, self._masking.take())):
            if error is not None:
                raise self._failure(culprit, error)
        grammar = self._grammar
        if grammar is not None:
            _obey(lambda: grammar.apply_mask(row))
        return row

    def follow(self, token: int) -> bool:
        """Let the grammar note the token that was chosen. False when there is none to do so."""
        grammar = self._grammar
        if grammar is None:
            return False
        self._begun_s = self._clock()
        self._is_known_late = False
        self._following.submit(lambda: self._accept(grammar, token))
        return True

    def followed(self) -> bool:
        """Whether the grammar is complete, so that nothing may follow; nothing is running.

        Raises SteeringFailed when it cannot go on.
        """
        error = self._following.take()
        if error is not None:
            raise self._failure(_GRAMMAR, error)
        return self._is_complete

    @property
    def _title(self) -> str:
        return "logits processor " + ", ".join(repr(processor.name) for processor in self._processors)

    def _failure(self, culprit: str, error: BaseException) -> SteeringFailed:
        if isinstance(error, TooCostly):
            self._on_bound(Bound.GRAMMAR_WORK)
        return _failure(culprit, error)

    def _make(self) -> None:
        """On a side lane."""
        with self._instances, torch.inference_mode():
            for processor in self._processors:
                processor.make()

    def _change(self, row: Tensor) -> None:
        """On a side lane."""
        # One row is too little for two threads, whose pool would come and go with this one.
        torch.set_num_threads(1)
        with self._instances, torch.inference_mode():
            for processor in self._processors:
                processor.change(row, self._tokens)

    def _accept(self, grammar: GrammarState, token: int) -> None:
        """On a side lane."""
        self._is_complete = grammar.accept(token)


def _obey(call: Callable[[], T]) -> T:
    """The grammar's library must not end the engine, not even by a panic, which is no Exception."""
    try:
        return call()
    except BaseException as exc:
        raise _failure(_GRAMMAR, exc) from exc


def _failure(culprit: str, error: BaseException) -> SteeringFailed:
    """What a processor raises is named where it was called; what is left names only its type."""
    if isinstance(error, SteeringFailed):
        return error
    return SteeringFailed(f"{culprit} failed ({type(error).__name__})")
