"""Promises of the room checker."""

from pathlib import Path

import pytest

from tools import rooms


def findings_of(root: Path, module: str, source: str) -> list[str]:
    """Check a tree that holds one module."""
    file = root / module
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source, encoding="utf-8")
    return rooms.check_tree(root)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("protocols/spec.py", "import anyio"),
        ("protocols/spec.py", "from actors.graph import Graph"),
        ("protocols/spec.py", "import asyncio"),
        ("actors/intake.py", "import asyncio.events"),
        ("actors/intake.py", "from concurrent import futures"),
        ("actors/intake.py", "import dynamo.llm"),
        ("actors/intake.py", "from opentelemetry import trace"),
        ("actors/intake.py", "import argparse"),
        ("actors/intake.py", "import os\nkey = os.environ['KEY']"),
        ("actors/intake.py", "from os import getenv"),
        ("actors/intake.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("actors/intake.py", "import importlib\nimportlib.import_module('dynamo.llm')"),
        ("actors/intake.py", "from . import graph"),
        ("actors/intake.py", "def late():\n    import service.main"),
        ("actors/supervisor.py", "import threading"),
        ("actors/engines/synthetic.py", "import torch"),
        ("actors/engines/torch/driver.py", "import tensorrt_llm"),
        ("actors/engines/torch/driver.py", "from dynamo.logits_processing import BaseLogitsProcessor"),
        ("actors/engines/torch/driver.py", "from actors.engines.trtllm.processors.patience import Patience"),
        ("actors/engines/trtllm/driver.py", "from actors.engines.torch import TorchEngine"),
        ("actors/engines/trtllm/driver.py", "from actors.engines import torch"),
        ("actors/engines/foreign/processors.py", "import actors.engines.torch.engine"),
        ("actors/engines/grammars/trial.py", "from actors.engines.trtllm.constraints import guiding"),
        ("actors/engines/grammars/plain.py", "from actors.engines.trtllm.constraints import guiding"),
        ("actors/engines/bridge.py", "from actors.engines.torch import engine"),
        ("service/main.py", "import tensorrt_llm"),
        ("service/models/registry.py", "import dynamo"),
        ("service/main.py", "from tests.doubles import fakes"),
    ],
)
def test_an_import_that_leaves_its_room_is_found(tmp_path: Path, module: str, source: str) -> None:
    """What a room may not import is reported with the file, its line and the name."""
    findings = findings_of(tmp_path, module, source)
    assert len(findings) == 1
    assert findings[0].startswith(f"{module}:{source.count(chr(10)) + 1}: ")


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("protocols/spec.py", "import enum, msgspec\nfrom protocols.errors import ServiceError"),
        ("actors/intake.py", "import os.path\nimport anyio.abc\nfrom protocols import messages"),
        ("actors/supervisor.py", "import asyncio"),
        ("actors/engines/synthetic.py", "import asyncio, threading"),
        ("actors/engines/torch/driver.py", "import threading\nimport torch.nn\nimport transformers"),
        ("actors/engines/trtllm/driver.py", "import tensorrt_llm"),
        ("actors/engines/trtllm/driver.py", "from actors.engines.foreign.processors import Processor"),
        ("actors/engines/torch/driver.py", "from actors.engines.torch.engine import TorchEngine"),
        ("actors/engines/torchlike.py", "import actors.engines.torchlike"),
        ("service/main.py", "import argparse, os\nimport dynamo.llm\nhost = os.environ.get('HOST')"),
        ("tools/rooms.py", "import anything_at_all"),
    ],
)
def test_what_a_room_may_import_is_let_through(tmp_path: Path, module: str, source: str) -> None:
    """The allowed libraries, the standard library and folders that are no room give no finding."""
    assert findings_of(tmp_path, module, source) == []


def test_the_longest_path_decides(tmp_path: Path) -> None:
    """A file in an inner room is judged by the inner room alone."""
    (tmp_path / "actors").mkdir()
    assert findings_of(tmp_path, "actors/engines/torch/paging.py", "import torch") == []
    assert len(findings_of(tmp_path, "actors/torchlike.py", "import torch")) == 1
