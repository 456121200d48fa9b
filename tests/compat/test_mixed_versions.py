"""Promises about an update of Dynamo: frontends and workers of both versions serve side by side.

Run by ``make compat`` alone, which has the second version. ``tests/e2e`` has the same with one version.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.e2e.stacks import ROOT, Reader, Stack, Worker
from tests.e2e.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

# This process runs in the environment of the newer one.
NEW = sys.executable
OLD = str(ROOT / ".venv" / "bin" / "python")
NAMES = {OLD: "older", NEW: "newer"}
MIXES = [mix for mix in itertools.product((OLD, NEW), repeat=3) if len(set(mix)) > 1]
NAME_OF_MIX = ["frontend-{}-from-{}-to-{}".format(*(NAMES[one] for one in mix)) for mix in MIXES]
TOKENS = 120
OPTIONS = ("--engine", "synthetic", "--synthetic-step-ms", "50", "--drain-timeout", "2")


def moved_by(worker: Worker) -> int:
    """Requests that its drain handed back to the frontend, as its log says."""
    (moved,) = re.findall(r"drain\.ended .*\bmoved=(\d+)", worker.log())
    return int(moved)


def knows_both(stack: Stack) -> bool:
    """Whether the frontend would choose between two workers."""
    return len(json.loads(stack.client.get("/health")[1])["instances"]) == 2


@pytest.mark.parametrize(("frontend", "first", "second"), MIXES, ids=NAME_OF_MIX)
def test_requests_move_between_versions(
    frontend: str, first: str, second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is under way when a worker drains goes on with the other one, with every token once."""
    assert metadata.version("ai-dynamo-runtime") != "1.4.2", "run by make compat"
    monkeypatch.setattr(sys, "executable", frontend)
    with Stack(tmp_path, OPTIONS, program=[first, "-m", "service"]) as stack:
        stack.workers.append(stack.add_worker(program=[second, "-m", "service"]))
        stack.wait_ready()
        wait_until(lambda: knows_both(stack), "the frontend does not see both workers")
        limits = {"max_tokens": TOKENS, "ignore_eos": True}
        readers = [Reader(stack.client, stack.model(), "q", limits).start() for _ in range(4)]
        for reader in readers:
            reader.wait_text(1)
        leaving = stack.workers[0]
        leaving.child.ask_to_stop()
        counts = [usage_of(reader.finish()) for reader in readers]
        assert leaving.child.wait(30) == 0
        assert counts == [TOKENS] * 4
        # The frontend takes turns.
        assert moved_by(leaving) == 2


def usage_of(reader: Reader) -> int:
    """Tokens of a whole answer, as the frontend counted them. Raises what the stream failed with."""
    if reader.error is not None:
        raise reader.error
    (usage,) = [piece.usage for piece in reader.pieces if piece.usage]
    return int(usage["completion_tokens"])
