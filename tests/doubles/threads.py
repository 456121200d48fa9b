"""Threads that a test must not leave behind."""

from __future__ import annotations

import threading

_PATIENCE_S = 10.0


def join_threads(name: str) -> None:
    """Wait for all threads of this name. Fails when one does not end."""
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(_PATIENCE_S)
            assert not thread.is_alive(), f"a thread {name!r} is left"
