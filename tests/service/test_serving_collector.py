"""Python's cyclic collector in a worker: off while it serves where the operator says so, with any engine."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.doubles.trtllm_llms import write_folder

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_S = 60.0
# The console script whose framework says how it found the collector, and ends.
PROGRAM = """
import gc
import sys

from service import main, serving
from service.stopping import StopSignals

serving.run = lambda *_: print("the collector is", "on" if gc.isenabled() else "off")
assert gc.isenabled()
main.run(sys.argv[1:], StopSignals())
"""


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "the collector is on"),
        ({"DYN_TRTLLM_SERVER_DISABLE_GC": "0"}, "the collector is on"),
        ({"DYN_TRTLLM_SERVER_DISABLE_GC": "1"}, "the collector is off"),
    ],
)
def test_the_collector_is_off_where_the_operator_says_so(
    tmp_path: Path, environ: dict[str, str], said: str
) -> None:
    """Before the framework serves: at thousands of requests each of its runs would stop the worker."""
    model = write_folder(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (model / name).write_text("{}")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DYN_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "--engine", "synthetic", "--model", str(model)],
        env={**clean, **environ},
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.stdout.splitlines() == [said], done.stderr
