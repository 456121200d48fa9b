"""An engine's end takes a bounded time, whatever its library does, and leaves no process."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from actors.engines.trtllm.life.ending import shut_down

pytestmark = pytest.mark.anyio


@pytest.fixture
def left_behind() -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends by nothing but a signal."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


def _raise() -> None:
    raise RuntimeError("an old error of some request")


def _exit() -> None:
    raise SystemExit(1)


@pytest.mark.parametrize(
    "shutdown",
    [lambda: None, _raise, _exit, threading.Event().wait],
    ids=["well", "raises", "exits", "hangs"],
)
async def test_no_process_is_left(
    left_behind: subprocess.Popen[bytes], shutdown: Callable[[], object]
) -> None:
    """Nor is anything raised: whoever ends an engine has nobody to tell."""
    await shut_down(SimpleNamespace(shutdown=shutdown), {left_behind.pid}, within_s=0.2)
    assert left_behind.wait(10) != 0
