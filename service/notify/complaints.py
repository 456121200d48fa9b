"""What the log says where a service manager cannot be told, or asks for what cannot be. Any thread."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


def refused(text: str) -> None:
    """A variable of the manager's is not followed; which, and why."""
    _log().warning("notify.refused", text=text)


def not_taken(error: str | None) -> None:
    """The manager did not take a message."""
    _log().warning("notify.not_taken", error=error)


def failed(error: Exception) -> None:
    """A fault of ours while the manager was told something."""
    _log().warning("notify.failed", error=type(error).__name__)


def impatient(watchdog_s: float, left_s: float, guard_s: float) -> None:
    """The manager may kill a worker that waits for its own event loop, before it has said why.

    left_s: of the manager's time, when the last sign of life is as old as it can be. guard_s: our own wait.
    """
    enough_s = math.ceil(watchdog_s / left_s * guard_s)
    text = (
        f"WATCHDOG_USEC={watchdog_s * 1e6:.0f}: of it {left_s:g} s are left for an event loop that stands "
        f"still, and this worker itself waits {guard_s:g} s (--engine-hang-timeout), so that it would be "
        f"killed before it has said why; set WatchdogSec={enough_s} or more, or --engine-hang-timeout to less"
    )
    _log().warning("notify.impatient", text=text)


def discovery_unseen(error: Exception) -> None:
    """Whether frontends find this worker cannot be seen."""
    _log().warning("notify.discovery_unseen", error=type(error).__name__)


def _log() -> FilteringBoundLogger:
    # Here, because the logger takes a tenth of a second to import, and the first word must not wait for it.
    from service.telemetry.logs import get_logger  # noqa: PLC0415

    return get_logger("service.notify")
