"""One hostile request with everything around it, and what it has coming by the schema alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import inspect

from tests.doubles.callers import wire_request
from tests.fuzz import constraints, headers, values
from tests.fuzz.schema import GROUPS, LEAVES, Leaf

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

_HIDDEN_PROMPT = (1, 15, 27, 33)
# A few clients use the same id, also at once.
_SHARED_IDS = tuple(f"shared-{number}" for number in range(6))


@dataclass(slots=True)
class Attack:
    """What is sent, and what is known about it beforehand.

    touched: paths of the fields that were changed: a refusal names one of them. forbidden: those of them that
    the schema forbids. is_nameless: no field can be named (half characters in keys, no object at all).
    """

    wire: Any
    metadata: dict[str, str] = field(default_factory=dict)
    trace_headers: dict[str, str] | None = None
    context_id: str | None = None
    touched: list[str] = field(default_factory=list)
    forbidden: set[str] = field(default_factory=set)
    is_nameless: bool = False

    def change(self, path: str) -> None:
        """This field is another one from now on; what was forbidden about it, or below it, is gone."""
        self.touched.append(path)
        self.forbidden = {each for each in self.forbidden if each != path and not each.startswith(f"{path}.")}


class Attacker:
    """Draws attacks. The same random source gives the same ones, in the same order.

    most_tokens: what a request that is served may ask for at most, mostly, to keep the run short.
    """

    def __init__(self, rng: Random, processors: tuple[str, ...] = (), most_tokens: int = 12) -> None:
        self._rng = rng
        self._processors = processors
        self._most_tokens = most_tokens
        self._kinds: tuple[tuple[int, Callable[[Attack], None]], ...] = (
            (16, self._wrong_kind),
            (24, self._odd_value),
            (20, self._right_value),
            (6, self._beyond_bounds),
            (6, self._unknown_key),
            (8, self._guided),
            (6, self._annotations),
            (2, self._giant),
            (4, self._nones),
            (3, self._anything),
            (3, self._probe),
            (2, self._no_object),
        )

    def next(self) -> Attack:
        """A valid request, spoilt in one to three ways, with context data of any sort."""
        rng = self._rng
        attack = Attack(wire_request(_HIDDEN_PROMPT, max_tokens=rng.randint(1, self._most_tokens)))
        weights, spoil = zip(*self._kinds, strict=True)
        for each in rng.choices(spoil, weights, k=rng.choice((1, 1, 1, 1, 2, 3))):
            if isinstance(attack.wire, dict):
                each(attack)
        if rng.random() < 0.2:
            attack.metadata = headers.metadata(rng)
            attack.touched.append("x-dynamo-meta-deadline-ms")
        if rng.random() < 0.2:
            attack.trace_headers = headers.trace_headers(rng)
        if rng.random() < 0.2:
            attack.context_id = rng.choice(_SHARED_IDS)
        return attack

    def _put(self, attack: Attack, leaf: Leaf, value: Any) -> None:
        attack.change(leaf.path)
        if leaf.group is None:
            attack.wire[leaf.name] = value
            return
        if not isinstance(attack.wire.get(leaf.group), dict):
            attack.change(leaf.group)
            attack.wire[leaf.group] = {}
        attack.wire[leaf.group][leaf.name] = value

    def _wrong_kind(self, attack: Attack) -> None:
        leaf = self._rng.choice([leaf for leaf in LEAVES if not leaf.takes_anything])
        self._put(attack, leaf, values.wrong_kind(self._rng, leaf.type))
        attack.forbidden.add(leaf.path)

    def _odd_value(self, attack: Attack) -> None:
        leaf = self._rng.choice(LEAVES)
        value = values.one_of_schema(self._rng, leaf)
        self._put(attack, leaf, value)
        if isinstance(leaf.type, inspect.FloatType) and not math.isfinite(value):
            attack.forbidden.add(leaf.path)

    def _right_value(self, attack: Attack) -> None:
        leaf = self._rng.choice(LEAVES)
        self._put(attack, leaf, values.right(self._rng, leaf.type))

    def _beyond_bounds(self, attack: Attack) -> None:
        leaf = self._rng.choice([leaf for leaf in LEAVES if leaf.has_bounds])
        self._put(attack, leaf, values.out_of_bounds(self._rng, leaf.type))
        attack.forbidden.add(leaf.path)

    def _unknown_key(self, attack: Attack) -> None:
        group = self._rng.choice((None, *GROUPS))
        leaf = Leaf(group, values.name(self._rng), None)
        self._put(attack, leaf, self._rng.choice((0, None, values.SECRET, [], {})))
        if group is not None and GROUPS[group]:
            attack.touched.append(group)
            attack.forbidden.add(leaf.path)

    def _guided(self, attack: Attack) -> None:
        self._put(attack, _leaf("sampling_options.guided_decoding"), constraints.guided(self._rng))

    def _annotations(self, attack: Attack) -> None:
        rng = self._rng
        texts = [
            constraints.annotation(rng, self._processors) for _ in range(rng.choice((1, 1, 2, 3, 9, 40)))
        ]
        self._put(attack, _leaf("annotations"), texts)

    def _giant(self, attack: Attack) -> None:
        leaf = self._rng.choice(LEAVES)
        self._put(attack, leaf, values.giant(self._rng))

    def _nones(self, attack: Attack) -> None:
        """Nothing in a field, in a group, or in all of them. A prompt that is not there is refused."""
        rng = self._rng
        if rng.random() < 0.5:
            leaf = rng.choice(LEAVES)
            self._put(attack, leaf, None)
        else:
            for key in rng.sample(list(attack.wire), k=rng.randint(1, len(attack.wire))):
                attack.wire[key] = None
                attack.change(str(key))
        if attack.wire.get("token_ids") is None:
            attack.forbidden.add("token_ids")

    def _anything(self, attack: Attack) -> None:
        leaf = self._rng.choice((*LEAVES, *(Leaf(None, group, None) for group in GROUPS)))
        self._put(attack, leaf, values.anything(self._rng))

    def _probe(self, attack: Attack) -> None:
        self._put(attack, _leaf("_HEALTH_CHECK"), self._rng.choice((True, True, False, 1, "true", None)))

    def _no_object(self, attack: Attack) -> None:
        """No request at all, or one whose keys are half characters."""
        rng = self._rng
        attack.is_nameless = True
        if rng.random() < 0.5:
            attack.wire = rng.choice((None, [], "x", 7, True, math.nan, [attack.wire], b"{}", ()))
            attack.forbidden.add("request")
        else:
            group = attack.wire.get(rng.choice(sorted(GROUPS)))
            (group if isinstance(group, dict) else attack.wire)[rng.choice(("\ud800", 7, None, ("a",)))] = 1


def _leaf(path: str) -> Leaf:
    (leaf,) = [leaf for leaf in LEAVES if leaf.path == path]
    return leaf
