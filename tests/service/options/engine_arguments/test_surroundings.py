"""What the arguments of TensorRT-LLM need of this machine: refused or warned about before anything loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from service.options import ConfigError, check_settings, refuse_missing_packages
from tests.service.options.engine_arguments.words import TRTLLM, override
from tests.service.options.world import load, refused, with_tensorrt

if TYPE_CHECKING:
    from pathlib import Path

KVBM = "the package kvbm is not installed: install it, or"


def warnings_with(gpus: int, *words: str, env: dict[str, str] | None = None) -> list[str]:
    """What a start on such a machine says of its ranks."""
    found = load(*TRTLLM, *words, env=env, installed=with_tensorrt(gpus=gpus)).warnings
    return [line for line in found if "GPU for each" in line]


@pytest.mark.parametrize(
    ("gpus", "words", "ranks"),
    [
        (1, ["--tensor-parallel-size", "2"], 2),
        (3, ["--tensor-parallel-size", "2", "--pipeline-parallel-size", "2"], 4),
        (1, [override(context_parallel_size=2)], 2),
        (4, ["--tensor-parallel-size", "16", "--gpus-per-node", "8"], 8),
    ],
)
def test_more_ranks_than_gpus_are_warned_about(gpus: int, words: list[str], ranks: int) -> None:
    """TensorRT-LLM would say so when it has loaded for a while."""
    (line,) = warnings_with(gpus, *words)
    assert f"wants a GPU for each of {ranks} ranks on this machine, and sees {gpus};" in line
    assert line.startswith(words[0] if words[0].startswith("--t") else "--override-engine-args:context")


@pytest.mark.parametrize(
    ("gpus", "words", "env"),
    [
        (2, ["--tensor-parallel-size", "2"], {}),
        (8, ["--tensor-parallel-size", "16", "--gpus-per-node", "8"], {}),
        (6, ["--tensor-parallel-size", "12", "--gpus-per-node", "8"], {}),
        (2, ["--tensor-parallel-size", "2", "--gpus-per-node", "8"], {}),
        (8, ["--tensor-parallel-size", "8", "--expert-parallel-size", "8"], {}),
        (0, ["--tensor-parallel-size", "2"], {}),
        (4, ["--tensor-parallel-size", "8"], {"TLLM_SPAWN_PROXY_PROCESS": "1"}),
        (4, ["--tensor-parallel-size", "8"], {"SLURM_NNODES": "2"}),
        (4, ["--tensor-parallel-size", "8"], {"OMPI_COMM_WORLD_SIZE": "8"}),
        (4, ["--tensor-parallel-size", "8"], {"PMI_SIZE": "8"}),
        (4, ["--tensor-parallel-size", "8"], {"RAY_LOCAL_WORLD_SIZE": "8"}),
        (4, ["--tensor-parallel-size", "8"], {"TLLM_DISABLE_MPI": "1"}),
        (4, ["--tensor-parallel-size", "8", "--trtllm.orchestrator_type", "ray"], {}),
    ],
)
def test_ranks_that_may_fit_are_not_warned_about(gpus: int, words: list[str], env: dict[str, str]) -> None:
    """Enough GPUs, a number that is not known, other machines, or somebody else who places them."""
    assert warnings_with(gpus, *words, env=env) == []


def test_a_launcher_of_one_machine_places_nothing_elsewhere() -> None:
    """A job of one machine has these variables, too."""
    env = {"SLURM_NNODES": "1", "OMPI_COMM_WORLD_SIZE": "1", "TLLM_SPAWN_PROXY_PROCESS": "0"}
    assert len(warnings_with(1, "--tensor-parallel-size", "2", env=env)) == 1


@pytest.mark.parametrize("name", ["SLURM_NNODES", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
@pytest.mark.parametrize("size", ["", "0", "1"])
def test_a_launcher_that_launched_nothing_places_nothing(name: str, size: str) -> None:
    """One variable of it is enough to see that, however it says none."""
    assert len(warnings_with(1, "--tensor-parallel-size", "2", env={name: size})) == 1


@pytest.mark.parametrize("name", ["TLLM_WORKER_USE_SINGLE_PROCESS", "TLLM_DISABLE_MPI"])
def test_variables_that_move_the_engine_are_warned_about(name: str) -> None:
    """Set in the environment or by the arguments; not where they are off, nor for other engines."""
    for words, env in (((), {name: "1"}), ((override(env_overrides={name: "1"}),), {})):
        (line,) = load(*TRTLLM, *words, env=env).warnings
        assert line.startswith(f"{name}: ")
    for value in ("", "0"):
        assert load(*TRTLLM, env={name: value}).warnings == ()
    assert load("--engine", "torch", env={name: "1"}).warnings == ()


def test_folders_of_adapters_must_be_there(tmp_path: Path) -> None:
    """Each that is not is named; a file is no folder."""
    (tmp_path / "law").mkdir()
    (tmp_path / "file").touch()
    there, missing, file = (str(tmp_path / name) for name in ("law", "none", "file"))
    load(*TRTLLM, override(lora_config={"lora_dir": [there]}))
    said = refused(*TRTLLM, override(lora_config={"lora_dir": [missing, there, file]})).splitlines()
    place = "--override-engine-args:lora_config.lora_dir"
    assert said == [f"{place}: value {name!r}: there is no such folder" for name in (missing, file)]


@pytest.mark.parametrize("is_newer", [True, False, "auto", None])
def test_a_cache_on_disk_must_be_there(tmp_path: Path, is_newer: object) -> None:
    """Where it has a size, whichever manager runs: TensorRT-LLM does not make its folder."""
    (tmp_path / "here").mkdir()
    manager = {} if is_newer is None else {"use_kv_cache_manager_v2": is_newer}

    def group(size: object, folder: str | None) -> str:
        return override(
            kv_cache_config={"disk_cache_size": size, "disk_cache_path": folder, **manager},
        )

    here, away = str(tmp_path / "here"), str(tmp_path / "away")
    for size, folder in ((1, here), ("5", here), (0, away), (None, away), (0, None), (None, here)):
        load(*TRTLLM, group(size, folder))
    place = "--override-engine-args:kv_cache_config"
    for size in (1, "5"):
        line = refused(*TRTLLM, group(size, away))
        assert line == f"{place}.disk_cache_path: value {away!r}: there is no such folder"
    for folder in (None, ""):
        line = refused(*TRTLLM, group(9, folder))
        assert line == f"{place}.disk_cache_size: value 9: needs a folder: give disk_cache_path"


def test_two_adapters_of_one_name_are_refused_with_both(tmp_path: Path) -> None:
    """An adapter is known by its folder's name; the check says so, and not only the start."""
    first, second = tmp_path / "a" / "law", tmp_path / "b" / "law"
    for folder in (first, second):
        folder.mkdir(parents=True)
    line = refused(*TRTLLM, override(lora_config={"lora_dir": [str(first), str(second)]}))
    assert line == (
        f"--override-engine-args:lora_config.lora_dir: value {str(second)!r}: is called as {first} is, and "
        "names tell adapters apart: rename one of the two"
    )


def test_what_is_no_folder_at_all_is_only_missing() -> None:
    """Whatever its text holds; what is not there is not compared."""
    folders = ["/none/law", "/elsewhere/law", "\0", "\ud800"]
    said = refused(*TRTLLM, override(lora_config={"lora_dir": folders})).splitlines()
    assert [line.endswith(": there is no such folder") for line in said] == [True] * len(folders)


def test_an_adapter_that_is_given_twice_is_one(tmp_path: Path) -> None:
    """However its folder is written."""
    (tmp_path / "law").mkdir()
    ways = [tmp_path / "law", f"{tmp_path}/law/", f"{tmp_path}/./law", f"{tmp_path}/law/../law"]
    load(*TRTLLM, override(lora_config={"lora_dir": [str(way) for way in ways]}))


def test_adapters_of_nemo_are_files(tmp_path: Path) -> None:
    """One for each; that a folder is none is left to TensorRT-LLM."""
    (tmp_path / "law.nemo").touch()
    group = {"lora_ckpt_source": "nemo", "lora_dir": [str(tmp_path / "law.nemo"), str(tmp_path)]}
    load(*TRTLLM, override(lora_config=group))
    group["lora_dir"] = [str(tmp_path / "tax.nemo")]
    assert refused(*TRTLLM, override(lora_config=group)).endswith("there is no such file")


@pytest.mark.parametrize(
    ("words", "where", "way_out"),
    [
        (["--connector", "kvbm"], "--connector: value 'kvbm'", "give --connector none"),
        (
            [override(kv_connector_config={"connector_module": "kvbm.own"})],
            "--override-engine-args:kv_connector_config.connector_module: value 'kvbm.own'",
            "leave kv_connector_config out",
        ),
    ],
)
def test_a_connector_that_is_not_installed_stops_check_and_start(
    words: list[str], where: str, way_out: str
) -> None:
    """With what was written and a way out; both in the same words, and before anything is imported."""
    settings = load(*TRTLLM, *words)
    with pytest.raises(ConfigError) as refusal:
        refuse_missing_packages(settings)
    assert str(refusal.value) == f"{where}: {KVBM} {way_out}"
    errors = [found.text for found in check_settings(settings, with_tensorrt()) if found.level == "error"]
    assert f"{where}: {KVBM} {way_out}" in errors


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--connector", "none"],
        [override(kv_connector_config={"connector_module": "json.decoder"})],
        [override(kv_connector_config={"connector": "lmcache"})],
    ],
)
def test_a_connector_that_may_be_there_stops_nothing(words: list[str]) -> None:
    """None at all, a module that is installed, or one that only TensorRT-LLM knows by its name."""
    refuse_missing_packages(load(*TRTLLM, *words))
    refuse_missing_packages(load("--engine", "torch"))


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ({"sleep_config": {}}, "kv_cache loses its content"),
        (
            {"sleep_config": {"restore_modes": {"kv_cache": "NONE"}}},
            "restore_modes.kv_cache to PINNED or CPU",
        ),
        ({"sleep_config": {"restore_modes": {"kv_cache": "CPU"}}}, ""),
        ({"sleep_config": {}, "kv_cache_config": {"enable_block_reuse": False}}, ""),
        ({"sleep_config": None}, ""),
        ({}, ""),
    ],
)
def test_a_sleep_that_will_be_refused_is_told_at_the_start(group: dict[str, object], said: str) -> None:
    """Whoever configures it hears what to set, and not only when it is asked for."""
    found = [line for line in load(*TRTLLM, override(**group)).warnings if "`sleep`" in line]
    place = "--override-engine-args:sleep_config: the control `sleep` will be refused: "
    assert all(line.startswith(place) for line in found)
    assert [said in line and "will be refused: " in line for line in found] == [True] * bool(said)
