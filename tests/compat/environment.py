"""A second environment: another ai-dynamo in front of everything else that is installed.

ai-dynamo cannot be resolved together with the versions this project is locked to, so it is installed
without its dependencies and finds those of the first environment behind itself.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from tests.e2e.stacks import ROOT

VERSION = "1.6.1"
_PACKAGES = (f"ai-dynamo=={VERSION}", f"ai-dynamo-runtime=={VERSION}")
_STAMP = ".complete"

# Prints the version and every module of the framework that came from somewhere else than the environment.
_CHECK = """
import sys
from importlib import metadata
import dynamo.frontend.main, service.serving
print(metadata.version("ai-dynamo"), metadata.version("ai-dynamo-runtime"))
for name, module in sorted(sys.modules.items()):
    file = getattr(module, "__file__", None)
    if name.split(".")[0] == "dynamo" and file and not file.startswith(sys.prefix):
        print(name, file)
"""


def prepare() -> Path:
    """The environment's Python, after it was made and looked at. Raises SystemExit when that fails."""
    home = ROOT / ".tools" / f"ai-dynamo-{VERSION}"
    python = home / "bin" / "python"
    wanted = "\n".join([sys.executable, sys.version, *_PACKAGES])
    stamp = home / _STAMP
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        print(f"compat: installing {' and '.join(_PACKAGES)} into {home.relative_to(ROOT)}", flush=True)
        _install(home, python)
        stamp.write_text(wanted, encoding="utf-8")
    _check(python)
    return python


def _install(home: Path, python: Path) -> None:
    venv.create(home, clear=True, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-compile", *_PACKAGES], check=True)
    first = sysconfig.get_path("purelib")
    second = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
    # Read after the environment's own folder, so what is there comes first on sys.path.
    (second / "behind.pth").write_text(f"import site; site.addsitedir({first!r})\n", encoding="utf-8")


def _check(python: Path) -> None:
    run = subprocess.run([python, "-c", _CHECK], cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode != 0 or run.stdout.split() != [VERSION, VERSION]:
        raise SystemExit(f"compat: this is not ai-dynamo {VERSION} alone:\n{run.stdout}{run.stderr}")
