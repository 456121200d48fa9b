"""What comes beside a request: a client's headers, in the framework's context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz.values import SECRET, TEXTS

if TYPE_CHECKING:
    from random import Random


def metadata(rng: Random) -> dict[str, str]:
    """What a client can put into the context by headers."""
    deadline = rng.choice(
        ("60000", "86400000", "86400001", "0", "-5", "nan", "inf", "-inf", "", " ", "1e4", "1_000", "0x10",
        "٣٠٠٠٠",
         "5" * 400, "9" * 100_000, "60000ms", SECRET, "\x00", "1e-300", "true")
    )  # fmt: skip
    others = {rng.choice(("deadline", "Deadline-Ms", "x", "")): rng.choice(("1", SECRET, "x" * 5000))}
    return rng.choice(({"deadline-ms": deadline}, {"deadline-ms": deadline, **others}, others))


def trace_headers(rng: Random) -> dict[str, str] | None:
    """Well-formed ones, sampled or not, and garbage."""
    parent = rng.choice(
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
         "00-00000000000000000000000000000000-0000000000000000-01", "ff-zz-zz-zz", "", "00", "x" * 100_000,
         "00-\ud800-1-01",
         "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-extra", "\x00",
         "00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-zz")
    )  # fmt: skip
    return rng.choice(
        (None, {}, {"traceparent": parent}, {"traceparent": parent, "tracestate": rng.choice(TEXTS)},
        {"TraceParent": parent},
         {"tracestate": "x" * 9000}, {"baggage": SECRET})
    )  # fmt: skip
