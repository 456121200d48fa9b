"""Randomness without state: one uniform per token, a function of seed, choice and position.

Neighbours, preemption and migration to another worker cannot change what is drawn, because
there is no generator whose state could differ.
"""

from __future__ import annotations

_MASK = 2**64 - 1
# Constants of the splitmix64 generator (Steele, Lea, Flood 2014).
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


def uniform(seed: int, choice: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits. ``position``: of the token in prompt plus output."""
    state = seed & _MASK
    for word in (choice, position):
        state = _mixed((state + _GOLDEN * (word + 1)) & _MASK)
    return (_mixed((state + _GOLDEN) & _MASK) >> 11) * 2.0**-53


def _mixed(value: int) -> int:
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK
    return value ^ (value >> 31)
