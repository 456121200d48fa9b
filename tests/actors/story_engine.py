"""The engine of a story: obeys its contract, but for what the story tells it to spoil."""

from __future__ import annotations

from collections import Counter
from typing import Any

from protocols.engine import EngineCapabilities
from protocols.spec import GuidedKind
from protocols.steps import Delta, EngineId, FinishReason
from tests.actors.stories import Flaw, Story
from tests.doubles.engines import VOCAB_SIZE, ScriptedEngine
from tests.doubles.preparers import HeldPreparer


class StoryEngine(ScriptedEngine):
    """Driven by a `Player`; remembers all it has truly said."""

    def __init__(self, story: Story) -> None:
        super().__init__(
            story.max_num_seqs,
            capabilities=EngineCapabilities(
                can_pause=story.can_pause, max_n=2, guided=frozenset({GuidedKind.REGEX})
            ),
            is_confirming=story.is_confirming,
        )
        self.preparer: HeldPreparer = HeldPreparer()
        self.refuses_next = False
        self.aborted: set[EngineId] = set()
        self.said: dict[EngineId, list[tuple[int, int]]] = {}
        self.ended: dict[EngineId, set[int]] = {}
        # Tokens said since everything was last at rest: they may be over a bound that nobody could tell us.
        self.fresh: Counter[EngineId] = Counter()
        # Steps so far, and whether one of them was more than last words.
        self.steps = 0
        self.is_alive_for_certain = False

    def submit(self, engine_id: EngineId, spec: Any) -> None:
        assert spec.guided is None or spec.guided.grammar == f"grammar of {spec.guided.constraint}"
        if self.refuses_next:
            self.refuses_next = False
            self.calls.append(("submit", engine_id))
            raise ValueError("not this one")
        super().submit(engine_id, spec)
        self.said[engine_id] = []
        self.ended[engine_id] = set()

    def emit(self, *deltas: Delta, **facts: Any) -> None:
        self.steps += 1
        self.is_alive_for_certain |= not all(delta.is_last for delta in deltas) or not deltas
        super().emit(*deltas, **facts)

    def abort(self, engine_id: EngineId) -> None:
        self.aborted.add(engine_id)
        super().abort(engine_id)

    @property
    def is_owing(self) -> bool:
        """Whether it has something to do: a request that is not held back, or an abort to confirm."""
        return any(engine_id in self.aborted or engine_id not in self.paused for engine_id in self.live)

    def hang(self) -> None:
        """Nothing more is said, to nobody."""
        self.is_confirming = False

    def tokens(self, engine_id: EngineId, index: int, count: int) -> list[int]:
        """So many new tokens of one choice, as far as it may go on; noted as said."""
        said = self.said[engine_id]
        room = self.live[engine_id].stop.max_tokens - sum(1 for choice, _ in said if choice == index)
        if engine_id in self.paused or index in self.ended[engine_id]:
            room = 0
        token_ids = [(len(said) + number) % VOCAB_SIZE for number in range(min(count, room))]
        said += [(index, token) for token in token_ids]
        self.fresh[engine_id] += len(token_ids)
        return token_ids

    def last_deltas(self, engine_id: EngineId, count: int) -> list[Delta]:
        """The end of every choice that is still open; the very last one ends the request."""
        n = self.live[engine_id].n
        still_open = [index for index in range(n) if index not in self.ended[engine_id]] or [n - 1]
        return [
            Delta(
                engine_id,
                self.tokens(engine_id, index, count if index == still_open[0] else 0),
                index,
                FinishReason.LENGTH,
                index == still_open[-1],
            )
            for index in still_open
        ]


def flawed(engine_id: EngineId, flaw: Flaw, n: int) -> Delta:
    match flaw:
        case Flaw.TOKEN:
            return Delta(engine_id, [1, -1])
        case Flaw.CHOICE:
            return Delta(engine_id, [1], n)
        case Flaw.NO_REASON:
            return Delta(engine_id, [], is_last=True)
        case Flaw.ERROR_WITHOUT_END:
            return Delta(engine_id, [], error="half an end")
        case Flaw.TOO_MANY:
            return Delta(engine_id, list(range(2000)))
