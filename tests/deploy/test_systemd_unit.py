"""The unit for systemd: read by systemd itself, and its times and names held against the worker's own."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from service.exit_codes import ExitCode
from service.loop_guard import LATEST
from service.notify.correspondence import EVERY_S, START_MORE_S, STOP_MORE_S
from service.notify.motion import LEAST_BYTES, LEAST_CPU_SHARE
from service.options import ConfigError, Settings
from service.stopping import STOP_SIGNALS
from tests.deploy.compose_files import REPOSITORY
from tests.deploy.unit_file import (
    PROGRAM,
    UNIT,
    Unit,
    alternatives,
    environ_of,
    on_gpu,
)
from tests.deploy.worker_settings import ON_CPU, ON_GPU, settings_of
from tests.e2e.servers import tool

# What the worker may not do, and what it needs all the same: GPUs, its cache, locked memory, many streams.
HARDENING = {
    "DynamicUser": "yes",
    "User": "dynamo-actor-worker",
    "CacheDirectory": "dynamo-actor-worker",
    "CacheDirectoryMode": "0750",
    "UMask": "0077",
    "LimitNOFILE": "65536",
    "LimitMEMLOCK": "infinity",
    "LimitCORE": "0",
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "DevicePolicy": "closed",
    "DeviceAllow": "char-nvidia* rw",
    "ProtectKernelTunables": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelLogs": "yes",
    "ProtectControlGroups": "yes",
    "ProtectClock": "yes",
    "ProtectHostname": "yes",
    "ProtectProc": "invisible",
    "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "RestrictNamespaces": "yes",
    "RestrictRealtime": "yes",
    "RestrictSUIDSGID": "yes",
    "LockPersonality": "yes",
    "SystemCallArchitectures": "native",
}
# Tenths of ten: what systemd itself calls OK ends at 50.
MOST_EXPOSED = 35
# What the worker's guard may be late by on a busy machine: it looks twelve times.
LATE_S = 5.0


@pytest.fixture
def unit() -> Unit:
    return Unit()


def analyze(folder: Path, *words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """systemd's own look at the unit, as a machine has it on which the worker is installed."""
    text = UNIT.read_text(encoding="utf-8") if text is None else text
    path = folder / UNIT.name
    path.write_text(text.replace(PROGRAM, "/bin/true"), encoding="utf-8")
    return subprocess.run(
        [tool("systemd-analyze"), *words, str(path)], capture_output=True, text=True, check=False, timeout=60
    )


def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    """Not one word: it only warns of what it does not know."""
    said = analyze(tmp_path, "verify", "--man=no")
    assert (said.returncode, said.stdout + said.stderr) == (0, "")


@pytest.mark.parametrize("wrong", ["KillMode=mixt", "KilMode=mixed", "TimeoutStopSec=150 sheep"])
def test_what_is_misspelt_would_be_found(tmp_path: Path, wrong: str) -> None:
    """The check above can fail."""
    text = UNIT.read_text(encoding="utf-8").replace("KillMode=mixed", wrong)
    assert "ignoring" in analyze(tmp_path, "verify", "--man=no", text=text).stderr


def test_little_is_exposed(tmp_path: Path) -> None:
    """By systemd's own measure; what is left is the network, GPUs, and code that is made at run time."""
    said = analyze(tmp_path, "security", "--offline=true", f"--threshold={MOST_EXPOSED}")
    assert said.returncode == 0, said.stdout


def test_the_worker_may_do_what_it_needs_and_no_more(unit: Unit) -> None:
    """Line by line; no capability at all, and no filter that nobody has tried with a GPU."""
    assert {name: unit.one(name) for name in HARDENING} == HARDENING
    assert unit.all("CapabilityBoundingSet") == []
    assert "CapabilityBoundingSet" in unit.names("Service")
    assert not {"MemoryDenyWriteExecute", "SystemCallFilter"} & unit.names("Service")


def test_a_worker_starts_after_what_it_needs(unit: Unit) -> None:
    """What is wanted is waited for; who makes NVIDIA's device nodes goes first, for the worker may not."""
    after = set(unit.one("After", "Unit").split())
    assert set(unit.one("Wants", "Unit").split()) <= after
    assert "nvidia-persistenced.service" in after
    # Ordering alone: on a machine without one of them the worker starts all the same.
    assert not {"Requires", "BindsTo", "Requisite"} & unit.names("Unit")


def test_the_cache_that_it_may_write_is_where_the_worker_writes(unit: Unit) -> None:
    """Its own models, the hub's, and what torch and CUDA compile are below the home folder."""
    assert unit.environment["HOME"] == f"%C/{unit.one('CacheDirectory')}"


def test_the_manager_is_told_by_the_worker_alone(unit: Unit) -> None:
    """Ready when the worker says so; the first signal is one that it knows, and only it gets it."""
    assert (unit.one("Type"), unit.one("NotifyAccess"), unit.one("KillMode")) == ("notify", "main", "mixed")
    assert unit.one("KillSignal") in {number.name for number in STOP_SIGNALS}


def test_the_way_out_fits_into_the_managers_patience(unit: Unit) -> None:
    """120 s for requests, the framework's hard exit at 140 s, SIGKILL at 150 s; the worker checks it."""
    settings = on_gpu()
    patience_s = unit.seconds("TimeoutStopSec")
    assert unit.environment["DYN_ACTOR_TERMINATION_GRACE_SECS"] == f"{patience_s:g}"
    drain = settings.drain
    assert (drain.grace_s, drain.drain_until_s, drain.hard_exit_s, patience_s) == (5, 125, 140, 150)
    told = settings.environment
    assert (told["DYN_WORKER_GRACEFUL_SHUTDOWN_TIMEOUT"], told["DYN_PREFILL_DRAIN_TIMEOUT_S"]) == (
        "135",
        "120",
    )


def test_a_manager_that_is_less_patient_is_refused_by_name() -> None:
    """As the unit's comment says; so the three lines cannot come apart unseen."""
    with pytest.raises(ConfigError, match="DYN_ACTOR_TERMINATION_GRACE_SECS"):
        on_gpu(DYN_ACTOR_TERMINATION_GRACE_SECS="139")
    with pytest.raises(ConfigError, match="DYN_ACTOR_TERMINATION_GRACE_SECS"):
        on_gpu(DYN_ACTOR_DRAIN_TIMEOUT="131")


def own_patience_s(settings: Settings) -> float:
    """How long the worker itself waits for an event loop that stands still."""
    return LATEST * min(settings.graph.hang_timeout_s, settings.drain.guard_at_s / LATEST)


@pytest.mark.parametrize("installed", [ON_GPU, ON_CPU], ids=["trtllm", "torch"])
def test_the_watchdog_comes_after_the_workers_own(unit: Unit, installed: object) -> None:
    """The last sign of life may be a third of the time old when the loop stops: two thirds are left."""
    engine = {} if installed is ON_GPU else alternatives("worker.env")
    settings = settings_of([], environ_of("0", **engine), ON_GPU if installed is ON_GPU else ON_CPU)
    assert unit.seconds("WatchdogSec") * 2 / 3 > own_patience_s(settings) + LATE_S


def test_a_start_has_time_to_say_that_it_gets_on(unit: Unit) -> None:
    """More time is asked for every 5 s, and each time for less than the first patience."""
    assert unit.seconds("TimeoutStartSec") > 2 * EVERY_S
    assert unit.seconds("TimeoutStartSec") > START_MORE_S


def test_only_a_configuration_that_is_refused_is_not_tried_again(unit: Unit) -> None:
    """Its code and no other; any other but 0 is a failure, and trying goes on for as long as it takes."""
    assert (unit.one("Restart"), unit.one("RestartPreventExitStatus")) == (
        "on-failure",
        str(ExitCode.CONFIGURATION.value),
    )
    assert not {"SuccessExitStatus", "RestartForceExitStatus"} & unit.names("Service")
    assert unit.one("StartLimitIntervalSec", "Unit") == "0"
    assert unit.seconds("RestartSec") >= 10


def test_the_configuration_is_checked_and_the_workers_own_code_counts(unit: Unit) -> None:
    """By the same program; systemd looks at the worker's code only, so the check may not end the start."""
    assert unit.one("ExecStart") == PROGRAM
    assert unit.one("ExecStartPre") == f"-{PROGRAM} --check-config"


def test_a_child_that_the_kernel_takes_is_no_end_of_the_worker(unit: Unit) -> None:
    """The process that tries constraints offers itself; systemd's default would stop everything."""
    trial = (REPOSITORY / "actors" / "engines" / "grammars" / "trial.py").read_text(encoding="utf-8")
    assert "oom_score_adj" in trial
    assert unit.one("OOMPolicy") == "continue"


def section() -> str:
    """What operators read about it."""
    page = (REPOSITORY / "docs" / "operations.md").read_text(encoding="utf-8")
    return page.partition("\n## Under systemd\n")[2].partition("\n## ")[0]


def test_the_page_shows_the_units_lines(unit: Unit) -> None:
    """What stands in its table is what is shipped; an ellipsis stands for the rest of a line."""
    table = section().partition("| in the unit |")[2].partition("\n\n")[0]
    first_cells = [row.split("|")[1] for row in table.splitlines()[2:]]
    shown = [line for cell in first_cells for line in re.findall(r"`([A-Z]\w+=[^`]*)`", cell)]
    assert len(shown) >= 10
    for line in shown:
        name, _, value = line.partition("=")
        assert name in unit.names("Service"), name
        assert not value or unit.one(name).startswith(value.rstrip("…")), line


def test_the_page_shows_the_workers_figures() -> None:
    """How often, by how much, and what counts as getting on."""
    text = " ".join(section().split())
    assert f"every {EVERY_S:g} s: {START_MORE_S:g} s more while a start gets on" in text
    assert f"after a signal {STOP_MORE_S:g} s more" in text
    assert f"{LEAST_CPU_SHARE:.0%}".replace("%", " %") + " of a core" in text
    assert f"{LEAST_BYTES >> 20} MiB" in text


def test_the_pages_longer_drain_is_one_that_starts() -> None:
    """Four numbers that go together; without the second it is refused, without the fourth killed early."""
    changed = Unit(text=re.findall(r"```\n(\[Service\]\n.*?)```", section(), re.DOTALL)[0])
    settings = on_gpu(**changed.environment)
    assert changed.environment["DYN_ACTOR_TERMINATION_GRACE_SECS"] == changed.one("TimeoutStopSec")
    assert settings.drain.hard_exit_s <= changed.seconds("TimeoutStopSec")
    assert changed.seconds("WatchdogSec") * 2 / 3 > own_patience_s(settings) + LATE_S
    assert f"{own_patience_s(settings):g} s here" in section()
    with pytest.raises(ConfigError, match="DYN_ACTOR_TERMINATION_GRACE_SECS"):
        on_gpu(DYN_ACTOR_DRAIN_TIMEOUT=changed.environment["DYN_ACTOR_DRAIN_TIMEOUT"])


def test_the_page_installs_what_the_unit_reads(unit: Unit) -> None:
    """Program, unit and files go to where the unit looks for them."""
    text = section()
    folder = unit.one("ExecStart").rpartition("/bin/")[0]
    assert f"-m venv {folder} " in text
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wheel = f"{project['name'].replace('-', '_')}-{project['version']}-py3-none-any.whl"
    assert f"{folder}/bin/pip wheel --no-deps -w dist .\n" in text
    assert f'{folder}/bin/pip install "dist/{wheel}[trtllm]"' in text
    assert "trtllm" in project["optional-dependencies"]
    assert "/etc/systemd/system deploy/systemd/dynamo-actor-worker@.service" in text
    assert "/etc/dynamo-actor-worker deploy/systemd/env/*.env" in text
