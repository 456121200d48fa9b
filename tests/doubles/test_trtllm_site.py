"""Promises of the site folder: the double is there while it is asked for, and gone afterwards."""

import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from types import ModuleType

import pytest

from tests.doubles.trtllm_site import SCRIPT, SITE, double_on_path, environ_with_double


def _is_there() -> bool:
    return find_spec("tensorrt_llm") is not None


def test_the_double_is_gone_afterwards() -> None:
    """Neither the package, nor its distribution, nor the paths are left."""
    path, environ = sys.path.copy(), dict(os.environ)
    with double_on_path():
        importlib.import_module("tensorrt_llm.llmapi.llm_args")
        assert importlib.metadata.version("tensorrt-llm") == "1.3.0rc22"
    assert not _is_there()
    assert not [name for name in sys.modules if name.startswith("tensorrt_llm")]
    assert (sys.path, dict(os.environ)) == (path, environ)
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("tensorrt-llm")


def test_the_double_is_gone_after_an_error() -> None:
    """A test that fails takes nothing of it into the next one."""
    with pytest.raises(ModuleNotFoundError), double_on_path():
        importlib.import_module("tensorrt_llm.not_there")
    assert not _is_there()


def test_what_was_loaded_before_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of the same name that the process had is hidden, not lost."""
    mine = ModuleType("tensorrt_llm")
    monkeypatch.setitem(sys.modules, "tensorrt_llm", mine)
    with double_on_path():
        assert importlib.import_module("tensorrt_llm") is not mine
    assert sys.modules["tensorrt_llm"] is mine


def test_a_second_visit_imports_anew() -> None:
    """What one test changed in the package's modules is unknown to the next."""
    with double_on_path():
        first = importlib.import_module("tensorrt_llm.sampling_params")
    with double_on_path():
        assert importlib.import_module("tensorrt_llm.sampling_params") is not first


def test_a_child_finds_the_double_and_its_script() -> None:
    """The environment is all that another process needs, and what it had on its path stays."""
    environ = environ_with_double({**os.environ, "PYTHONPATH": "there"}, load_s=1.5)
    assert environ["PYTHONPATH"].split(os.pathsep) == [str(SITE), "there"]
    assert json.loads(environ[SCRIPT]) == {"load_s": 1.5}
    code = "import tensorrt_llm.version as v; print(v.__version__)"
    said = subprocess.run(
        [sys.executable, "-c", code], env=environ, check=True, capture_output=True, text=True
    )
    assert said.stdout.strip() == "1.3.0rc22"


def test_an_environment_without_a_script_says_nothing() -> None:
    """Without traps the variable is left as it is."""
    assert SCRIPT not in environ_with_double({})
