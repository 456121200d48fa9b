"""The double of TensorRT-LLM as a site folder: on this process's path for a while, or on a child's for good.

What it does is scripted by one environment variable in JSON, which is read when an LLM is built.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

SITE = Path(__file__).with_name("tensorrt_llm")
PACKAGE = "tensorrt_llm"
SCRIPT = "TENSORRT_LLM_DOUBLE"


@contextmanager
def double_on_path() -> Iterator[None]:
    """Make ``import tensorrt_llm`` find the double, and take it all back at the end.

    Modules of the package that were there before come back as they were; the children of an LLM get the
    path with the environment.
    """
    before = _take_modules()
    environ = {name: os.environ.get(name) for name in ("PYTHONPATH",)}
    sys.path.insert(0, str(SITE))
    os.environ["PYTHONPATH"] = _with_site(os.environ.get("PYTHONPATH"))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(SITE))
        for name, value in environ.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        _take_modules()
        sys.modules.update(before)
        sys.path_importer_cache.pop(str(SITE), None)
        importlib.invalidate_caches()


def environ_with_double(environ: Mapping[str, str], **script: object) -> dict[str, str]:
    """Return `environ` for a child that finds the double; `script` is what the double is to do there."""
    changed = dict(environ) | {"PYTHONPATH": _with_site(environ.get("PYTHONPATH"))}
    if script:
        changed[SCRIPT] = json.dumps(script)
    return changed


def _with_site(python_path: str | None) -> str:
    return os.pathsep.join([str(SITE), *(filter(None, (python_path or "").split(os.pathsep)))])


def _take_modules() -> dict[str, ModuleType]:
    """Take the package and all below it out of the loaded modules, and return them."""
    names = [name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}.")]
    return {name: sys.modules.pop(name) for name in names}
