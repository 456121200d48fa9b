"""The compose files: valid, hardened, for this machine only, with budgets that agree."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy import compose_files, dockerfile
from tests.deploy.compose_files import BASE, DEPLOY, FOLDER, OBSERVABILITY
from tests.deploy.listening import environ_of, value_of
from tests.deploy.worker_settings import ON_CPU, settings_of
from tests.e2e.servers import tool

NATS = FOLDER / "compose.nats.yaml"
ALL = (BASE, OBSERVABILITY, NATS)
SERVICES = compose_files.services(ALL)
NAMES = sorted(SERVICES)
OURS = ("frontend", "worker")
# Where a person expects each of them: upstream's ports.
PUBLISHED = {
    "frontend": [8000], "worker": [8081], "prometheus": [9090], "grafana": [3000], "tempo": [3200],
    "otel-collector": [4317, 4318],
}  # fmt: skip


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_a_file_is_valid_by_the_schema_of_compose(path: Path) -> None:
    """Compose's own schema, as check-jsonschema brings it along."""
    checker = Path(sys.executable).with_name("check-jsonschema")
    words = [str(checker), "--builtin-schema", "vendor.compose-spec", str(path)]
    said = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.parametrize("name", NAMES)
def test_a_service_has_no_right_that_it_does_not_need(name: str) -> None:
    """A read-only root, no capability, no way to gain one."""
    raw = SERVICES[name].raw
    assert raw["read_only"] is True
    assert raw["cap_drop"] == ["ALL"]
    assert raw["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "network_mode", "pid", "devices"} & raw.keys()


@pytest.mark.parametrize("name", OURS)
def test_our_image_runs_below_an_init_as_the_image_s_user(name: str) -> None:
    """Signals before Python's first line, and orphans, are the init's business."""
    raw = SERVICES[name].raw
    assert raw["init"] is True
    assert raw["user"] == dockerfile.read()[1]["cpu"].all("USER")[-1]
    build = raw["build"]
    assert (FOLDER / build["context"] / build["dockerfile"]).resolve() == dockerfile.DOCKERFILE
    assert build["target"] in dockerfile.read()[1]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_published_beyond_this_machine(name: str) -> None:
    """Everything on the loopback, at the port where upstream has it."""
    ports = SERVICES[name].ports
    assert {port.address for port in ports} <= {"127.0.0.1"}
    assert [port.outside for port in ports] == PUBLISHED.get(name, [])
    assert all(port.outside == port.inside for port in ports)


@pytest.mark.parametrize("name", NAMES)
def test_an_image_is_named_by_its_version(name: str) -> None:
    """No `latest`, and none that moves by itself."""
    image, _, tag = SERVICES[name].image.rpartition(":")
    assert image
    assert tag.lstrip("v")[0].isdigit()
    assert tag.count(".") == 2


@pytest.mark.parametrize("name", NAMES)
def test_what_is_mounted_is_there_and_stays_as_it_is(name: str) -> None:
    """Files and folders of the repository read-only; volumes are declared."""
    declared = compose_files.merged(ALL)["volumes"]
    for mount in SERVICES[name].mounts:
        if mount.path is None:
            assert mount.source in declared
        else:
            assert mount.path.exists(), mount
            assert mount.is_read_only, mount


@pytest.mark.parametrize("name", NAMES)
def test_who_waits_for_another_can(name: str) -> None:
    """It exists; who has a health check is waited for until it is healthy, and nobody else."""
    for other, condition in SERVICES[name].waits_for.items():
        has_check = SERVICES[other].health is not None
        assert condition == ("service_healthy" if has_check else "service_started"), (name, other)


def test_the_worker_s_budgets_fit_into_the_time_until_it_is_killed() -> None:
    """By the worker's own rule; and it is told that time, so that it would refuse to start itself."""
    worker = SERVICES["worker"]
    environ = environ_of(worker)
    settings = settings_of(worker.argv, environ, ON_CPU)
    assert settings.warnings == ()
    assert settings.drain.drain_until_s - settings.drain.grace_s == 120
    assert settings.drain.hard_exit_s < worker.stop_grace_s
    assert environ["DYN_ACTOR_TERMINATION_GRACE_SECS"] == str(worker.stop_grace_s)
    # What the framework must see follows from these; said twice it could differ.
    assert not settings.drain.environment.keys() & environ.keys()


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_start_is_not_tried_for_ever(name: str) -> None:
    """A mistake (code 2) is one the next time, too: it is given up, and "--wait" says so."""
    policy, _, times = str(SERVICES[name].raw["restart"]).partition(":")
    assert policy == "on-failure"
    assert 1 <= int(times) <= 5


def test_a_frontend_has_time_to_end_its_streams() -> None:
    """Five seconds, its own default, and as long again to end."""
    frontend = SERVICES["frontend"]
    assert "DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS" not in environ_of(frontend)
    assert frontend.stop_grace_s >= 5 + 5


def test_the_worker_stops_before_those_who_bring_its_answers_away() -> None:
    """Compose stops in the reverse order of waiting: worker, frontend, etcd."""
    assert "frontend" in SERVICES["worker"].waits_for
    assert "etcd" in SERVICES["frontend"].waits_for
    assert "etcd" in SERVICES["worker"].waits_for
    assert "worker" not in SERVICES["frontend"].waits_for


def test_the_frontend_moves_requests() -> None:
    """Three times at most: what a drain could not finish goes on with another worker."""
    assert value_of(SERVICES["frontend"], "--migration-limit") == "3"


def test_both_look_for_each_other_at_the_same_place() -> None:
    """Etcd at the address where it listens, and over NATS where that file is added."""
    etcd = value_of(SERVICES["etcd"], "--advertise-client-urls")
    for name in OURS:
        environ = environ_of(SERVICES[name])
        assert environ["DYN_DISCOVERY_BACKEND"] == "etcd"
        assert environ["ETCD_ENDPOINTS"] == etcd
        assert (environ["DYN_REQUEST_PLANE"], environ["DYN_EVENT_PLANE"]) == ("nats", "nats")
        assert environ["NATS_SERVER"] == "nats://nats:4222"
        without = compose_files.services([BASE, OBSERVABILITY])[name].environ({})
        assert not {"NATS_SERVER", "DYN_REQUEST_PLANE", "DYN_EVENT_PLANE"} & without.keys()


def test_nats_understands_its_file() -> None:
    """With the server's own check; and it listens where the variables say."""
    path = FOLDER / "nats-server.conf"
    said = subprocess.run(
        [tool("nats-server"), "-t", "-c", path], capture_output=True, text=True, check=False, timeout=20
    )
    assert said.returncode == 0, said.stderr
    assert "\nport: 4222\n" in path.read_text(encoding="utf-8")
    (mount,) = SERVICES["nats"].mounts
    assert mount.path == path
    assert mount.target in SERVICES["nats"].argv


def test_health_checks_ask_the_port_where_the_service_listens() -> None:
    """The frontend's HTTP port; the worker's system server, at the port that it publishes."""
    frontend, worker = SERVICES["frontend"], SERVICES["worker"]
    port = value_of(frontend, "--http-port")
    assert frontend.health is not None
    assert frontend.health.words[-1] == f"http://127.0.0.1:{port}/health"
    assert worker.health is not None
    assert len(worker.health.words) == 2, "an address of its own instead of DYN_SYSTEM_PORT"
    settings = settings_of(worker.argv, environ_of(worker), ON_CPU)
    assert [settings.runtime.system_port] == [port.inside for port in worker.ports]
    # Frontends of other containers fetch the tokenizer there.
    assert settings.runtime.system_host == "0.0.0.0"


def test_a_health_check_gives_up_after_its_script_did() -> None:
    """Or the container's engine would see a time-out instead of a reason."""
    script = (DEPLOY / "container" / "healthcheck.py").read_text(encoding="utf-8")
    patience_s = float(script.split("_PATIENCE_S = ")[1].split()[0])
    for name in OURS:
        health = SERVICES[name].health
        assert health is not None
        assert patience_s < health.timeout_s


@pytest.mark.parametrize(("name", "loads"), [("etcd", False), ("frontend", False), ("worker", True)])
def test_a_slow_start_is_not_called_unhealthy(name: str, loads: bool) -> None:
    """`up --wait` fails with the first unhealthy one: a first start may fetch a model, as in the image."""
    health = SERVICES[name].health
    assert health is not None
    words = dict(re.findall(r"--([a-z-]+)=(\w+)", dockerfile.read()[1]["cpu"].one("HEALTHCHECK")))
    least_s = compose_files.seconds(words["start-period"]) if loads else 20
    assert health.patience_s >= least_s
    # Python and the framework alone take many seconds on a busy machine.
    assert health.start_period_s >= (60 if "build" in SERVICES[name].raw else 0)


def test_no_secret_is_in_the_files() -> None:
    """Tokens, and an address that may hold a password, come from the shell of whoever starts it."""
    worker = SERVICES["worker"]
    for name in ("DYN_ACTOR_CONTROL_TOKEN", "HF_TOKEN", "PIP_INDEX_URL"):
        assert worker.environment[name] is None
        assert worker.environ({name: "from-the-shell"})[name] == "from-the-shell"
        assert name not in worker.environ({})


def test_the_model_survives_the_container() -> None:
    """The volume is mounted where the image has its caches, and belongs to its user."""
    stage = dockerfile.read()[1]["cpu"]
    (mount,) = SERVICES["worker"].mounts
    assert mount.path is None
    assert mount.target == stage.environ["XDG_CACHE_HOME"]
    assert any(f"chown 1000:0 {mount.target}" in text for text in stage.all("RUN"))


def test_one_file_alone_is_a_whole_stack() -> None:
    """compose.yaml needs neither of the others; each of the others adds to it and takes nothing away."""
    alone = compose_files.services([BASE])
    assert alone.keys() == {"etcd", "frontend", "worker"}
    for extra in (OBSERVABILITY, NATS):
        both = compose_files.services([BASE, extra])
        for name, service in alone.items():
            for key, value in service.raw.items():
                there = both[name].raw[key]
                if isinstance(value, dict):
                    there = {inner: there[inner] for inner in value}
                assert there == value, (name, key)


def test_yaml_that_is_wrong_is_seen_by_these_checks(tmp_path: Path) -> None:
    """The checker itself: a key that compose does not know fails."""
    document: dict[str, Any] = yaml.safe_load(BASE.read_text(encoding="utf-8"))
    document["services"]["worker"]["stop_grace_perod"] = "150s"
    path = tmp_path / "compose.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    with pytest.raises(AssertionError):
        test_a_file_is_valid_by_the_schema_of_compose(path)
