"""Drop-in by the console script: upstream's argument lines through real processes, and how they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.doubles.trtllm_llms import write_folder
from tests.service.options.engine_arguments.drop_in import STARTS, UNTOLD, Start
from tests.service.options.upstream_flags import UPSTREAM_OPTIONS

pytestmark = pytest.mark.timeout(90)

PATIENCE_S = 60.0
# Nothing of the developer's own settings may decide these tests.
FOREIGN = ("DYN_", "ETCD_", "NATS_", "KUBERNETES_", "HF_", "TRTLLM_", "TLLM_", "DOUBLE_", "TENSORRT_")
# Where the machine of a test lacks what the line needs; all other lines are fine.
LACKING = {
    "launch/disagg_same_gpu_decode_kvbm.sh decode": "the package kvbm is not installed",
    "recipes/deepseek-r1/trtllm/disagg/wide_ep/gb200 prefill": "there is no folder /model-cache/",
}

Done = subprocess.CompletedProcess[str]


def check_config(*words: str, **environ: str) -> Done:
    """What the console script says of these words, on a machine with eight GPUs."""
    return worker("--check-config", *words, **environ)


def worker(*words: str, **environ: str) -> Done:
    """The console script on a machine with eight GPUs, until it ends by itself."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return subprocess.run(
        [sys.executable, "-m", "tests.doubles.trtllm_worker", *words],
        env={**clean, "DOUBLE_GPUS": "8", **environ},
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip


def words_of(start: Start, folder: Path) -> list[str]:
    """With its engine's file where it is expected."""
    path = folder / "engine.yaml"
    path.write_text(yaml.safe_dump(dict(start.engine_file)), encoding="utf-8")
    return [str(path) if word == "ENGINE_FILE" else word for word in start.words]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Done]]:
    """All lines of upstream's, two at a time."""

    def run(start: Start) -> Done:
        return check_config(*words_of(start, tmp_path_factory.mktemp("start")))

    with ThreadPoolExecutor(2) as pool:
        yield dict(zip([start.name for start in STARTS], pool.map(run, STARTS), strict=True))


@pytest.mark.parametrize("start", STARTS, ids=[start.name for start in STARTS])
def test_upstreams_lines_are_taken_as_they_stand(ended: dict[str, Done], start: Start) -> None:
    """Code 0, or 2 with what this machine has not; the engine and its arguments are those that were meant."""
    done = ended[start.name]
    lacking = LACKING.get(start.name)
    assert done.returncode == (0 if lacking is None else 2), done.stdout
    assert done.stderr == ""
    errors = [line for line in done.stdout.splitlines() if line.startswith("error")]
    assert [lacking in line for line in errors if lacking is not None] == [True] * (lacking is not None)
    assert len(errors) == (lacking is not None)
    assert "engine: trtllm (tensorrt-llm is installed)" in done.stdout
    _, _, told = done.stdout.partition("engine arguments: ")
    assert json.loads(told.splitlines()[0]) == {**UNTOLD, "model": start.model, **start.differs}


def test_every_variable_of_upstream_at_its_default_changes_nothing() -> None:
    """None is unknown or refused; of the engine's arguments one more is said aloud, and it is off."""
    environ = {
        option.variable: option.default
        for option in UPSTREAM_OPTIONS
        if option.variable is not None and option.default is not None and option.treatment != "V"
    }
    done = check_config("--engine", "trtllm", **environ)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "is not known" not in done.stdout
    _, _, told = done.stdout.partition("engine arguments: ")
    assert json.loads(told.splitlines()[0]) == {
        **UNTOLD,
        "model": environ["DYN_TRTLLM_MODEL"],
        "attention_dp_config": {"kv_cache_routing_conversation_affinity": False},
    }


REFUSED: list[tuple[list[str], dict[str, str], str]] = [
    (["--extra-engine-args", "FILE"], {}, "kv_cache_confg: unknown key; the nearest is kv_cache_config"),
    (
        ["--override-engine-args", '{"kv_cache_config": {"free_gpu_memory_fracton": 0.5}}'],
        {},
        "kv_cache_config.free_gpu_memory_fracton: unknown key; the nearest is free_gpu_memory_fraction",
    ),
    (["--override-engine-args", "{}", "--trtllm.max_batch_size", "5"], {}, "cannot be combined"),
    (["--max-batch-sise", "5"], {}, "--max-batch-size"),
    (["--modality", "video_diffusion"], {}, "--modality"),
    (["--load-format", "gms"], {}, "--load-format"),
    ([], {"DYN_TRTLLM_MAX_BATCH_SIZE": "many"}, "DYN_TRTLLM_MAX_BATCH_SIZE"),
    ([], {"DYN_TRTLLM_DISAGGREGATION_MODE": "encode"}, "DYN_TRTLLM_DISAGGREGATION_MODE"),
]


@pytest.mark.parametrize(("words", "environ", "named"), REFUSED, ids=[named for *_, named in REFUSED])
def test_mistakes_stop_the_start_by_name(
    tmp_path: Path, words: list[str], environ: dict[str, str], named: str
) -> None:
    """Code 2, one line with the right name, and nothing was loaded."""
    path = tmp_path / "engine.yaml"
    path.write_text("{kv_cache_confg: {free_gpu_memory_fraction: 0.5}}", encoding="utf-8")
    given = [str(path) if word == "FILE" else word for word in words]
    done = check_config("--engine", "trtllm", *given, **environ)
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stderr
    assert named in done.stderr + done.stdout


@pytest.mark.parametrize("words", [[], ["--engine", "trtllm"]], ids=["chosen", "asked for"])
def test_a_start_without_a_gpu_is_worth_another_try(words: list[str]) -> None:
    """Code 69: a driver that is late at boot must not keep the worker down, as code 2 would."""
    done = worker(*words, DOUBLE_GPUS="0")
    assert done.returncode == 69, done.stderr
    assert "no GPU is visible" in done.stderr.splitlines()[-1]


def test_two_adapters_of_one_name_are_one_line(tmp_path: Path) -> None:
    """Code 2, by the start as by the check; the same folder twice is no mistake."""
    adapters = [tmp_path / "a" / "law", tmp_path / "b" / "law"]
    for adapter in adapters:
        adapter.mkdir(parents=True)
    words = ("--engine", "trtllm", "--override-engine-args")
    alike = json.dumps({"lora_config": {"lora_dir": [str(adapter) for adapter in adapters]}})
    for done in (worker(*words, alike), check_config(*words, alike)):
        assert done.returncode == 2, done.stdout
        (line,) = done.stderr.splitlines()
        assert f"{str(adapters[1])!r}: is called as {adapters[0]} is" in line
    twice = json.dumps({"lora_config": {"lora_dir": [str(adapters[0])] * 2}})
    assert check_config(*words, twice).returncode == 0


@pytest.mark.parametrize(
    ("script", "words", "code", "said"),
    [
        ({"dies_while_loading": True}, [], 1, "RuntimeError: Executor worker died during initialization."),
        ({"load_error": "no memory"}, [], 1, "RuntimeError: Executor worker returned error."),
        ({}, ["--trtllm.kv_cache_config.dtype", "int3"], 2, "ValidationError: 1 validation error"),
    ],
    ids=["dies", "fails", "refuses"],
)
def test_only_arguments_that_are_refused_end_as_a_configuration(
    tmp_path: Path, script: dict[str, object], words: list[str], code: int, said: str
) -> None:
    """A supervisor that does not restart after code 2 tries an engine again that died; one line says why."""
    model = write_folder(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (model / name).write_text("{}")
    done = worker(
        "--engine", "trtllm", "--model", str(model), "--discovery-backend", "file", *words,
        TENSORRT_LLM_DOUBLE=json.dumps(script), DYN_FILE_KV=str(tmp_path / "discovery"),
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    ours = [line for line in done.stderr.splitlines() if line.startswith("dynamo-actor-worker: ")]
    assert len(ours) == 1
    assert f"TensorRT-LLM could not be loaded: {said}" in ours[0]
    assert "Traceback" not in done.stderr


def test_a_connector_that_is_not_installed_stops_the_start_too(tmp_path: Path) -> None:
    """In the words of the check, code 2: the model, which is not there either, was not looked at."""
    words = ("--engine", "trtllm", "--model", str(tmp_path / "none"), "--connector", "kvbm")
    started, checked = worker(*words), check_config(*words)
    assert (started.returncode, checked.returncode) == (2, 2)
    said = started.stderr.splitlines()[-1].removeprefix("dynamo-actor-worker: ")
    assert said.endswith(": the package kvbm is not installed: install it, or give --connector none")
    assert f"error   connector: {said}" in checked.stdout.splitlines()


def test_a_variable_that_is_nearly_right_is_a_warning() -> None:
    """Others may have variables that begin alike: the start goes on."""
    done = check_config("--engine", "trtllm", DYN_TRTLLM_MAX_BATCH_SIZ="8")
    assert done.returncode == 0, done.stdout
    assert "the nearest is DYN_TRTLLM_MAX_BATCH_SIZE" in done.stdout
