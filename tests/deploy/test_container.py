"""The images: what they are built from, what they run, and as whom. None is built here: no daemon runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from tests.deploy import dockerfile
from tests.deploy.compose_files import DEPLOY, REPOSITORY, seconds
from tests.deploy.dockerfile import DOCKERFILE, Stage
from tests.deploy.lock_file import LOCK, locked

ARGUMENTS, STAGES = dockerfile.read()
IMAGES = ("cpu", "gpu")
PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
# Libraries that do not go to ~/.cache by themselves, or where HOME does not decide. FlashInfer's go there.
_CACHES = {"XDG_CACHE_HOME", "HF_HOME", "TORCHINDUCTOR_CACHE_DIR"}
CACHES = {
    "cpu": _CACHES,
    # Else ~/.triton, ~/.nv, ~/.tensorrt_llm, ~/.deep_gemm, which a root that is read-only does not take.
    "gpu": _CACHES | {"TRITON_CACHE_DIR", "CUDA_CACHE_PATH", "TRTLLM_DG_CACHE_DIR", "DG_JIT_CACHE_DIR"},
}
# Of the annotations that the Open Containers Initiative has names for, those that say what an image is.
LABELS = {"title", "description", "source", "version", "revision", "licenses", "base.name", "base.digest"}


def copied(stage: Stage) -> list[str]:
    """What a stage takes out of the repository."""
    texts = [text for text in stage.all("COPY") if "--from" not in text]
    return [word for text in texts for word in text.split()[:-1]]


def is_ignored(path: str) -> bool:
    """Whether the builder never sees it: the last rule of .dockerignore that names it, or a folder above."""
    places = [path, *(str(above) for above in Path(path).parents if str(above) != ".")]
    result = False
    for line in (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines():
        rule = line.strip().lstrip("!")
        if not rule or rule.startswith("#"):
            continue
        if any(fnmatch(place, rule) or fnmatch(place, rule.removeprefix("**/")) for place in places):
            result = not line.startswith("!")
    return result


def test_the_dockerfile_passes_its_lint_without_exceptions() -> None:
    """hadolint finds nothing, and nothing tells it not to look."""
    assert "hadolint ignore" not in DOCKERFILE.read_text(encoding="utf-8")
    hadolint = Path(sys.executable).with_name("hadolint")
    said = subprocess.run(
        [hadolint, "--no-color", DOCKERFILE], capture_output=True, text=True, check=False, timeout=60
    )
    assert (said.stdout, said.returncode) == ("", 0)


@pytest.mark.parametrize("name", list(STAGES))
def test_what_an_image_copies_is_there_and_reaches_the_builder(name: str) -> None:
    """A path that was renamed, or that .dockerignore keeps back, would fail the build of somebody else."""
    for source in copied(STAGES[name]):
        assert (REPOSITORY / source).exists(), source
        assert not is_ignored(source), source


def test_the_builder_sees_nothing_that_no_image_copies() -> None:
    """No history, no environment of a developer, no tests: they would slow the build, and may leak."""
    wanted = {source.rstrip("/") for stage in STAGES.values() for source in copied(stage)}
    seen = {path.name for path in REPOSITORY.iterdir() if not is_ignored(path.name)}
    assert seen == {source for source in wanted if "/" not in source}
    for folder in ("requirements", "deploy/container"):
        inside = {f"{folder}/{path.name}" for path in (REPOSITORY / folder).iterdir()}
        assert {path for path in inside if not is_ignored(path)} == {
            path for path in wanted if path in inside
        }
    for secret in (".git", ".venv", ".env", "deploy/compose/.env", "tests", "service/__pycache__"):
        assert is_ignored(secret), secret


def test_the_wheel_is_made_of_what_the_project_says_it_is() -> None:
    """Each package, and each file that its metadata names, is copied into the stage that makes the wheel."""
    whole = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    packages: list[str] = whole["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    needed = {*packages, PROJECT["readme"], *PROJECT["license-files"], "pyproject.toml"}
    assert needed <= set(copied(STAGES["wheel"]))


def test_bases_are_named_by_a_whole_version_and_can_be_pinned_by_digest() -> None:
    """No tag that moves by itself; the GPU's is of the framework's version that the lock file has."""
    assert ARGUMENTS["GPU_IMAGE"].rsplit(":", 1)[1] == locked("ai-dynamo")
    assert re.fullmatch(r"\d+\.\d+\.\d+-slim-\w+", ARGUMENTS["PYTHON_IMAGE"].rsplit(":", 1)[1])
    for stage in STAGES.values():
        assert stage.base in {ARGUMENTS["GPU_IMAGE"], ARGUMENTS["PYTHON_IMAGE"]}
    for base in re.findall(r"^FROM (\S+)", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE):
        pinned = dockerfile.filled(
            base, {**ARGUMENTS, "GPU_DIGEST": "sha256:aa", "PYTHON_DIGEST": "sha256:bb"}
        )
        assert re.fullmatch(r"[\w./:-]+@sha256:(aa|bb)", pinned), base


def test_the_python_of_the_image_is_one_that_the_project_supports() -> None:
    """At least what pyproject.toml asks for, and one that it names."""
    version = ARGUMENTS["PYTHON_IMAGE"].rsplit(":", 1)[1].rsplit(".", 1)[0]
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_runs_the_console_script_as_a_plain_user(name: str) -> None:
    """No root, no shell before it that would keep signals to itself, and SIGTERM as the signal to stop."""
    stage = STAGES[name]
    assert stage.entrypoint == list(PROJECT["scripts"])
    assert stage.all("CMD") == []
    assert stage.all("USER")[-1] == "1000:0"
    assert stage.one("STOPSIGNAL") == "SIGTERM"


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_writes_below_its_cache_folder_only(name: str) -> None:
    """HOME, and each cache that a library would choose itself, lie where one may write."""
    environ = STAGES[name].environ
    assert environ["HOME"] == "/home/dynamo"
    caches = {name: place for name, place in environ.items() if name == "HF_HOME" or "CACHE_" in name}
    assert caches.keys() == CACHES[name]
    assert all(Path(place).is_relative_to("/home/dynamo/.cache") for place in caches.values())
    assert environ["PYTHONDONTWRITEBYTECODE"] == "1"


@pytest.mark.parametrize("name", IMAGES)
def test_the_health_check_of_an_image_is_in_it_and_asks_the_port_that_is_open(name: str) -> None:
    """The script lies where HEALTHCHECK looks; it asks DYN_SYSTEM_PORT, which the image sets and exposes."""
    stage = STAGES[name]
    words: list[str] = json.loads(stage.one("HEALTHCHECK").split(" CMD ", 1)[1])
    targets = [text.split()[-1] for text in stage.all("COPY") if "deploy/container/healthcheck.py" in text]
    assert [f"{target}healthcheck.py" for target in targets] == words[1:]
    assert stage.environ["DYN_SYSTEM_PORT"] in stage.one("EXPOSE").split()


@pytest.mark.parametrize(("name", "start"), [("cpu", 15 * 60), ("gpu", 60 * 60)])
def test_a_health_check_has_the_patience_that_a_start_and_its_script_need(name: str, start: int) -> None:
    """As long as a model takes to load, longer than the script waits itself, and not for one miss."""
    words = dict(re.findall(r"--([a-z-]+)=(\w+)", STAGES[name].one("HEALTHCHECK")))
    script = (DEPLOY / "container" / "healthcheck.py").read_text(encoding="utf-8")
    patience_s = float(script.split("_PATIENCE_S = ")[1].split()[0])
    assert seconds(words["start-period"]) == start
    assert patience_s < seconds(words["timeout"]) <= seconds(words["interval"])
    assert int(words["retries"]) == 3


def test_group_0_may_write_what_the_user_may() -> None:
    """A platform that chooses the user gives it group 0; without a volume the cache is the image's."""
    (text,) = [text for text in STAGES["cpu"].all("RUN") if "useradd" in text]
    assert "--uid 1000 --gid 0 " in text
    assert "chmod 0775 /home/dynamo /home/dynamo/.cache" in text


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_says_what_it_is(name: str) -> None:
    """Labels of the Open Containers Initiative, with the project's version unless the build says another."""
    labels = STAGES[name].labels
    assert {label.removeprefix("org.opencontainers.image.") for label in labels} == LABELS
    assert f"VERSION={PROJECT['version']}" in STAGES[name].all("ARG")
    assert labels["org.opencontainers.image.licenses"] == PROJECT["license"]


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_says_what_it_stands_on(name: str) -> None:
    """Its own base, with the digest of that build: who looks for a hole in a base finds the right images."""
    stage = STAGES[name]
    digests = {"GPU_DIGEST": "sha256:aa", "PYTHON_DIGEST": "sha256:bb"}
    # A label sees the arguments that are asked for in its own stage, and no other.
    seen = {word: value for word, value in {**ARGUMENTS, **digests}.items() if word in stage.all("ARG")}
    said = {
        label: dockerfile.filled(stage.labels[f"org.opencontainers.image.base.{label}"], seen)
        for label in ("name", "digest")
    }
    (base,) = re.findall(rf"^FROM (\S+) AS {name}$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert f"{said['name']}@{said['digest']}" == dockerfile.filled(base, {**ARGUMENTS, **digests})


def test_what_was_installed_is_checked_as_a_whole() -> None:
    """After the last package: else a set that does not go together, or has CUDA in it, becomes an image."""
    commands = [command for text in STAGES["cpu-environment"].all("RUN") for command in text.split(" && ")]
    last = max(number for number, command in enumerate(commands) if "pip install" in command)
    assert commands[last + 1] == "python -m pip check"
    assert "torch.version.cuda is None" in commands[last + 2]
    # The other image's script does the same itself, and ends the build with what it found.
    assert any("add_to_environment.py" in text.split(" && ")[-1] for text in STAGES["gpu"].all("RUN"))


def test_no_download_of_pip_or_uv_stays_in_an_image() -> None:
    """Their caches would double its size."""
    for text in (text for stage in STAGES.values() for text in stage.all("RUN")):
        for command in re.findall(r"pip (?:install|wheel)[^&]*", text):
            assert "--no-cache-dir" in command, command
    assert '"--no-cache"' in (DEPLOY / "container" / "add_to_environment.py").read_text(encoding="utf-8")


def test_torch_is_the_locked_one_and_comes_from_the_index_without_cuda() -> None:
    """The expression in the Dockerfile finds the pin, and nothing else is asked of that index."""
    (text,) = [text for text in STAGES["cpu-environment"].all("RUN") if "TORCH_INDEX" in text]
    expression = re.search(r"sed -n '([^']+)' /tmp/lock.txt", text)
    assert expression is not None
    found = subprocess.run(
        ["sed", "-n", expression[1], str(LOCK)], capture_output=True, text=True, check=True, timeout=20
    )
    assert found.stdout.split() == [f"torch=={locked('torch')}"]
    first, second = text.split("&&")
    assert first.startswith('PIP_INDEX_URL="$TORCH_INDEX" ')
    assert "--no-deps" in first
    assert "index" not in second.lower()


@pytest.mark.parametrize(
    "words", [("--version",), ("--check-config", "--model", "smollm2-135m", "--engine", "torch")]
)
def test_the_entry_point_answers_with_the_variables_of_the_image(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    """As `docker run IMAGE WORDS` does, with HOME and caches in a folder that is there."""
    environ = {
        name: text.replace("/home/dynamo", str(tmp_path))
        for name, text in STAGES["cpu"].environ.items()
        if name != "PATH"
    }
    program = Path(sys.executable).with_name(STAGES["cpu"].entrypoint[0])
    said = subprocess.run(
        [program, *words], env=environ, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert said.returncode == 0, said.stderr
    if words == ("--version",):
        assert said.stdout.startswith(f"dynamo-actor-worker {PROJECT['version']}")
