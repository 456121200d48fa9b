"""Promises of the double's hand-offs: what a prefill leaves, and when a decode does not get it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.trtllm_site import double_on_path


@pytest.fixture(autouse=True, scope="module")
def _double() -> Iterator[None]:
    with double_on_path():
        yield


def test_it_can_be_fetched_once(tmp_path: Path) -> None:
    """By another side that knows the folder."""
    from tensorrt_llm._double.late import Late
    from tensorrt_llm._double.transfers import Transfers

    prefill, decode = Transfers(str(tmp_path), 60.0), Transfers(str(tmp_path), 60.0)
    state = prefill.leave([5, 6], [7])
    assert prefill.held == 1
    decode.fetch(state, [5, 6])
    assert prefill.held == 0
    with pytest.raises(Late):
        decode.fetch(state, [5, 6])


def test_it_is_held_for_a_while_only(tmp_path: Path) -> None:
    """As long as the configuration says."""
    from tensorrt_llm._double.late import Late
    from tensorrt_llm._double.transfers import Transfers

    now_s = 100.0
    both = Transfers(str(tmp_path), 60.0, lambda: now_s)
    first, second = both.leave([5], [7]), both.leave([5], [7])
    now_s = 160.0
    both.fetch(first, [5])
    now_s = 161.0
    with pytest.raises(Late, match="time"):
        both.fetch(second, [5])


def test_it_ends_with_its_prefill(tmp_path: Path) -> None:
    """One that leaves takes it back; one that was killed leaves what cannot be fetched."""
    from tensorrt_llm._double.late import Late
    from tensorrt_llm._double.transfers import Transfers

    both = Transfers(str(tmp_path), 60.0)
    state = both.leave([5], [7])
    both.close()
    with pytest.raises(Late):
        both.fetch(state, [5])
    state = both.leave([5], [7])
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (path,) = tmp_path.glob("*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "pid": gone.pid}))
    with pytest.raises(Late, match="gone"):
        both.fetch(state, [5])


@pytest.mark.parametrize("state", [None, b"", b"something else", b"double-kv:nothing.json"])
def test_a_state_that_nobody_made_is_refused(tmp_path: Path, state: bytes | None) -> None:
    """Whatever it is."""
    from tensorrt_llm._double.late import Late
    from tensorrt_llm._double.transfers import Transfers

    with pytest.raises(Late):
        Transfers(str(tmp_path), 60.0).fetch(state, [5])


def test_without_a_folder_nothing_is_left() -> None:
    """The prefill's own request fails."""
    from tensorrt_llm._double.late import Late
    from tensorrt_llm._double.transfers import Transfers

    with pytest.raises(Late, match="folder"):
        Transfers("", 60.0).check()
