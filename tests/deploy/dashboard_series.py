"""Two hours of a series, as promtool's unit tests have it, and when the dashboard's questions are asked.

A counter rises twice, so a window of another length sees another rise.
"""

from __future__ import annotations

MINUTES = 120
# Half a minute later: windows that have their first moment in them see what windows without it see.
ASKED_AT = f"{MINUTES}m30s"
# Four samples are in it. A counter that rises by 180 between them rises by one a second, as Prometheus
# reckons, and by 240 in all: three minutes are seen, and four are meant.
WINDOWS = {"$__rate_interval": "4m", "$__range": "30m", "$__interval": "30s"}
_LENGTH = 180
# Before the window of rates: the same for all counters, so that a longer one has other shares and quantiles.
_EARLIER = 10 * _LENGTH

Series = dict[str, str]


def ours(name: str) -> str:
    """A worker's own."""
    return f"dynamo_actor_{name}"


def joined(own: str, labels: str) -> str:
    """Both, where there are both."""
    return f"{own}, {labels}" if own else labels


def steady(name: str, labels: str, value: float) -> Series:
    """All the time."""
    return {"series": f"{name}{{{labels}}}", "values": f"{value:g}x{MINUTES}"}


def rising(name: str, labels: str, per_second: int) -> Series:
    """A counter: in the fourth last minute by what is the same for all, and in the third last by its own."""
    first = 1_000_000
    last = first + _EARLIER + _LENGTH * per_second
    values = f"{first}x{MINUTES - 4} {first + _EARLIER} {last}x2"
    return {"series": f"{name}{{{labels}}}", "values": values}


def rising_long_ago(name: str, labels: str, count: int) -> Series:
    """By a thousand an hour and five minutes ago, and by so many three quarters of an hour ago."""
    values = f"0x{MINUTES - 66} 1000x20 {1000 + count}x{MINUTES - 76}"
    return {"series": f"{name}{{{labels}}}", "values": values}


def ended(name: str, labels: str, minutes: int) -> Series:
    """1, until so many minutes ago."""
    return {"series": f"{name}{{{labels}}}", "values": f"1x{MINUTES - minutes} stale"}
