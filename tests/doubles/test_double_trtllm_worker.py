"""Promises of the worker with the double: what it seems to run on, and how the double is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

FACTS = """
import os
from tests.doubles import trtllm_worker
trtllm_worker.put_on_path()
trtllm_worker.seem_to_have_gpus()
from service.options.machine import read_engine_facts
facts = read_engine_facts(os.environ)
print(facts.tensorrt_installed, facts.tensorrt_problem == "", facts.gpus)
"""


PATHS = """
import json, os, sys
from tests.doubles.trtllm_worker import SITE, put_on_path
put_on_path()
put_on_path()
print(json.dumps([sys.path.count(str(SITE)), os.environ["PYTHONPATH"].split(os.pathsep)]))
"""
# What the machine that runs the tests says about itself.
_OF_THE_MACHINE = ("CUDA_VISIBLE_DEVICES", "DOUBLE_GPUS", "PYTHONPATH")


def _run(*argv: str, **environ: str) -> str:
    own = {name: value for name, value in os.environ.items() if name not in _OF_THE_MACHINE}
    child = subprocess.run(
        [sys.executable, *argv], env={**own, **environ}, capture_output=True, text=True, check=True
    )
    return child.stdout.strip()


@pytest.mark.parametrize(
    ("environ", "gpus"),
    [
        ({}, 1),
        ({"DOUBLE_GPUS": "8"}, 8),
        ({"DOUBLE_GPUS": "8", "CUDA_VISIBLE_DEVICES": "0,3"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 0),
    ],
)
def test_the_machine_seems_to_have_it_all(environ: dict[str, str], gpus: int) -> None:
    """The library, and as many GPUs as the variables say."""
    assert _run("-c", FACTS, **environ) == f"True True {gpus}"


def test_it_is_the_worker() -> None:
    """All its options are there."""
    assert "--model" in _run("-m", "tests.doubles.trtllm_worker", "--help")


def test_the_path_is_set_once_and_for_children() -> None:
    """However often it is asked for."""
    count, paths = json.loads(_run("-c", PATHS, PYTHONPATH="somewhere"))
    assert (count, len(paths), paths[1]) == (1, 2, "somewhere")
