"""What the service manager's variables ask for: where to write, and how often a sign of life is due."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from dataclasses import dataclass

SOCKET_VARIABLE = "NOTIFY_SOCKET"
WATCHDOG_VARIABLE = "WATCHDOG_USEC"
WATCHDOG_PID_VARIABLE = "WATCHDOG_PID"

# What fits into the kernel's sockaddr_un.sun_path; a path needs its closing zero there, too.
_LONGEST_PATH = 107
_LONGEST_ABSTRACT = 108
# A day, as the longest time that anybody may set for anything else here. The shortest is a busy loop's turn.
_LONGEST_WATCHDOG_S = 86_400.0
_SHORTEST_WATCHDOG_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """What was asked for. address: as the socket module takes it; None: nobody listens.

    watchdog_s: within how many seconds a sign of life is due; None: none is. refused: variables that were not
    followed, each with the reason; their values are not shown.
    """

    address: bytes | None = None
    watchdog_s: float | None = None
    refused: tuple[str, ...] = ()


def take_supervision(environ: MutableMapping[str, str]) -> Supervision:
    """Read the variables and remove them: no child of ours is to speak in our name."""
    where = environ.pop(SOCKET_VARIABLE, "")
    interval = environ.pop(WATCHDOG_VARIABLE, "")
    meant_for = environ.pop(WATCHDOG_PID_VARIABLE, "")
    if not where:
        return Supervision()
    address, why_not = _address(where)
    if address is None:
        return Supervision(refused=(f"{SOCKET_VARIABLE}: {why_not}",))
    if not interval or meant_for not in ("", str(os.getpid())):
        return Supervision(address=address)
    watchdog_s = _seconds(interval)
    if watchdog_s is None:
        allowed = f"{_SHORTEST_WATCHDOG_S:g} s to {_LONGEST_WATCHDOG_S:g} s, in whole microseconds"
        return Supervision(address=address, refused=(f"{WATCHDOG_VARIABLE}: not a time from {allowed}",))
    return Supervision(address=address, watchdog_s=watchdog_s)


def _address(where: str) -> tuple[bytes | None, str]:
    """As the socket module takes it, or why it is none."""
    raw = os.fsencode(where)
    if b"\0" in raw:
        return None, "a zero byte in it"
    if raw.startswith(b"/"):
        return (raw, "") if len(raw) <= _LONGEST_PATH else (None, "a path of more than 107 bytes")
    if raw.startswith(b"@") and len(raw) > 1:
        fits = len(raw) <= _LONGEST_ABSTRACT
        return (b"\0" + raw[1:], "") if fits else (None, "an abstract name of more than 107 bytes")
    return None, "neither an absolute path nor an abstract name (@…); vsock is for virtual machines"


def _seconds(interval: str) -> float | None:
    if not (interval.isascii() and interval.isdigit() and len(interval) <= len("86400000000")):
        return None
    seconds = int(interval) / 1_000_000
    return seconds if _SHORTEST_WATCHDOG_S <= seconds <= _LONGEST_WATCHDOG_S else None
