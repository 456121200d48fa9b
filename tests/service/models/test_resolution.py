"""Promises of ``--model``: aliases, folders and hub ids, and errors that say what to write instead."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.exit_codes import ExitCode
from service.models import ModelInvalid, ModelUnavailable, catalogue, is_prepared, preparation, resolve_model
from service.models.catalogue import BuiltInModel
from service.models.command import model_command
from tests.service.models.displays import Remembered
from tests.service.models.hub_server import open_hub
from tests.service.models.test_preparation import steps_with

MODEL_FILES = {"config.json": b"{}", "tokenizer.json": b'{"version": "1.0"}', "model.safetensors": b"weights"}


@pytest.fixture
def tiny_in_catalogue(
    tiny: BuiltInModel, tiny_wheel: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Make the tiny model a built-in one; return its alias."""
    monkeypatch.setitem(catalogue.BUILT_IN_MODELS, tiny.alias, tiny)
    monkeypatch.setattr("service.models.resolution.Steps", lambda: steps_with(tiny_wheel))
    return tiny.alias


def make_folder(folder: Path, files: dict[str, bytes] = MODEL_FILES) -> Path:
    """Write a model folder."""
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def test_an_alias_gives_the_prepared_folder(tiny_in_catalogue: str) -> None:
    """A built-in name is prepared at first use and served under that name."""
    assert not is_prepared(tiny_in_catalogue)
    resolved = resolve_model(tiny_in_catalogue, progress=Remembered())
    assert (resolved.served_name, resolved.source) == (tiny_in_catalogue, "built-in")
    assert is_prepared(tiny_in_catalogue)


def test_a_prepared_alias_needs_no_network(tiny_in_catalogue: str) -> None:
    """Offline, what is prepared is used; what is not is unavailable, with the command that helps."""
    with pytest.raises(ModelUnavailable, match=r"not prepared in .*; run `dynamo-actor-worker model tiny`"):
        resolve_model(tiny_in_catalogue, offline=True, progress=Remembered())
    prepared = resolve_model(tiny_in_catalogue, progress=Remembered())
    assert resolve_model(tiny_in_catalogue, offline=True, progress=Remembered()) == prepared


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    """A folder with configuration and tokenizer is used in place, under its own name."""
    folder = make_folder(tmp_path / "my-model")
    resolved = resolve_model(str(folder), progress=Remembered())
    assert (resolved.path, resolved.served_name, resolved.source) == (folder, "my-model", "folder")


@pytest.mark.parametrize(
    ("without", "missing"),
    [
        ({"config.json"}, "no config.json"),
        ({"tokenizer.json"}, "no tokenizer"),
        ({"config.json", "tokenizer.json"}, "no config.json and no tokenizer"),
    ],
)
def test_a_folder_without_what_is_needed_is_refused(tmp_path: Path, without: set[str], missing: str) -> None:
    """The error names every missing file."""
    folder = make_folder(
        tmp_path / "m", {name: data for name, data in MODEL_FILES.items() if name not in without}
    )
    with pytest.raises(ModelInvalid, match=missing):
        resolve_model(str(folder), progress=Remembered())


@pytest.mark.parametrize("config", [b"{", b"[]", b"\xff"])
def test_a_folder_with_a_torn_configuration_is_refused(tmp_path: Path, config: bytes) -> None:
    """A config.json that is no JSON object is named."""
    folder = make_folder(tmp_path / "m", MODEL_FILES | {"config.json": config})
    with pytest.raises(ModelInvalid, match=r"config\.json"):
        resolve_model(str(folder), progress=Remembered())


@pytest.mark.parametrize("name", ["smolm2-135m", "SmolLM2-135M", "smollm2-153m", "smollm2_135m"])
def test_a_near_miss_is_recognised(name: str) -> None:
    """A slip of the pen gets the name that was meant."""
    with pytest.raises(ModelInvalid, match=r"did you mean smollm2-135m\?"):
        resolve_model(name, progress=Remembered())


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "nowhere", "~/nowhere", "a/b/c", ""])
def test_a_name_that_is_nothing_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is neither alias nor folder nor hub id is a configuration error that says what is allowed."""
    monkeypatch.chdir(make_folder(tmp_path / "empty", {}))
    with pytest.raises(ModelInvalid):
        resolve_model(name, progress=Remembered())


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    """Naming a file says so."""
    (tmp_path / "model.gguf").touch()
    with pytest.raises(ModelInvalid, match="it is a file, not a folder"):
        resolve_model(str(tmp_path / "model.gguf"), progress=Remembered())


def run_command(name: str, endpoint: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run ``model NAME`` in a process of its own: the hub's client reads its settings at import."""
    code = (
        "import sys; from service.models.command import model_command; sys.exit(model_command(sys.argv[1:]))"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    environ |= {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_ETAG_TIMEOUT": "2",
    }
    command = [sys.executable, "-c", code, name]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=20, check=False)


def test_a_hub_model_is_downloaded_without_code(tmp_path: Path) -> None:
    """Safetensors and descriptions are fetched; pickles, Python files and other formats are not."""
    others = {"pytorch_model.bin": b"pickle", "modeling_evil.py": b"boom", "onnx/model.json": b"{}"}
    with open_hub("org/small", MODEL_FILES | others) as hub:
        first = run_command("org/small", hub.endpoint, tmp_path)
    assert (first.returncode, sorted(hub.fetched)) == (ExitCode.PLANNED, sorted(MODEL_FILES)), first.stderr
    folder = Path(first.stdout.splitlines()[-1])
    assert {file.name for file in folder.iterdir()} == set(MODEL_FILES)
    again = run_command("org/small", hub.endpoint, tmp_path)
    assert (again.returncode, again.stdout) == (ExitCode.PLANNED, first.stdout), again.stderr


def test_an_interrupted_download_is_no_model_offline(tmp_path: Path) -> None:
    """A part of a hub model in the cache is not taken for the model when the hub is out of reach."""
    with open_hub("org/small", MODEL_FILES) as hub:
        del hub.files[next(path for path in hub.files if path.endswith("tokenizer.json"))]
        assert run_command("org/small", hub.endpoint, tmp_path).returncode != ExitCode.PLANNED
    result = run_command("org/small", hub.endpoint, tmp_path)
    assert (result.returncode, result.stdout) == (ExitCode.UNAVAILABLE, "")


def test_a_hub_model_without_safetensors_is_refused(tmp_path: Path) -> None:
    """Weights that could run code when loaded are not an answer."""
    files = {name: data for name, data in MODEL_FILES.items() if name != "model.safetensors"}
    with open_hub("org/old", files | {"pytorch_model.bin": b"pickle"}) as hub:
        result = run_command("org/old", hub.endpoint, tmp_path)
    assert (result.returncode, result.stdout) == (ExitCode.CONFIGURATION, "")
    assert "no *.safetensors file" in result.stderr


def test_an_unknown_hub_id_is_a_configuration_error(tmp_path: Path) -> None:
    """The hub's 'no' ends with 2: asking again will not help."""
    with open_hub("org/small", MODEL_FILES) as hub:
        result = run_command("org/other", hub.endpoint, tmp_path)
    assert result.returncode == ExitCode.CONFIGURATION
    assert "no such model" in result.stderr


def test_a_hub_out_of_reach_is_unavailable(tmp_path: Path) -> None:
    """No connection ends with 69 and says that nothing of that name is here."""
    with open_hub("org/small", MODEL_FILES) as hub:
        pass
    result = run_command("org/small", hub.endpoint, tmp_path)
    assert (result.returncode, result.stdout) == (ExitCode.UNAVAILABLE, "")
    assert "cannot be reached" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_command_prints_the_folder_last(
    tiny_in_catalogue: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Progress is on standard error; standard output is the folder alone."""
    assert model_command([tiny_in_catalogue]) == ExitCode.PLANNED
    out, err = capsys.readouterr()
    assert out == f"{resolve_model(tiny_in_catalogue, offline=True).path}\n"
    assert "converting to safetensors" in err


@pytest.mark.parametrize("argv", [[], ["a", "b"], ["--wat"]])
def test_wrong_usage_is_a_configuration_error(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Anything but one name prints the usage and ends with 2."""
    assert model_command(argv) == ExitCode.CONFIGURATION
    assert "usage: dynamo-actor-worker model" in capsys.readouterr().err


def test_a_failing_download_ends_the_command_with_69(
    tiny_in_catalogue: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without network the command says what is missing and how to go on."""

    def no_network(*arguments: object) -> Path:
        raise ModelUnavailable("tiny", "pip could not download it", "check the network")

    steps = preparation.Steps(fetch=no_network)
    monkeypatch.setattr("service.models.resolution.Steps", lambda: steps)
    assert model_command([tiny_in_catalogue]) == ExitCode.UNAVAILABLE
    assert capsys.readouterr().err.endswith("model 'tiny': pip could not download it; check the network\n")
