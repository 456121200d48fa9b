"""The environment files of the unit for systemd: complete, known, and not reachable from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from service.options import EngineChoiceError, choose_engine
from service.options.known_names import FRAMEWORK_VARIABLES
from service.options.tables import OPTIONS
from tests.deploy.compose_files import REPOSITORY
from tests.deploy.listening import SERVICES, collector_port, listeners
from tests.deploy.unit_file import (
    ENVIRONMENTS,
    Unit,
    alternatives,
    assignments,
    environ_of,
    environment_file,
    on_gpu,
)
from tests.deploy.worker_settings import ON_CPU, ON_GPU, settings_of

INSTANCES = ("0", "1")
LOOPBACK = "127.0.0.1"
# Read by others than the worker and the framework: etcd's client, CUDA, OpenTelemetry, the hub's client.
FOREIGN = {"ETCD_ENDPOINTS", "CUDA_VISIBLE_DEVICES", "HF_TOKEN"}
KNOWN = FRAMEWORK_VARIABLES | {name for option in OPTIONS for name in option.envs()} | FOREIGN


def test_no_file_takes_the_times_of_the_way_out_away_from_the_unit() -> None:
    """They stand beside TimeoutStopSec, and nowhere else."""
    for name in ("worker.env", "0.env", "1.env"):
        assert not (environment_file(name) | alternatives(name)).keys() & Unit().environment.keys()


def test_every_file_that_the_unit_reads_is_shipped() -> None:
    """The common one, and one for each instance; the instance's comes last, and wins."""
    common, own = Unit().all("EnvironmentFile")
    assert common == "/etc/dynamo-actor-worker/worker.env"
    assert own == "/etc/dynamo-actor-worker/%i.env"
    shipped = {path.name for path in ENVIRONMENTS.iterdir()}
    assert shipped == {"worker.env", *(f"{instance}.env" for instance in INSTANCES)}


@pytest.mark.parametrize("name", ["worker.env", "0.env", "1.env"])
def test_every_variable_is_known(name: str) -> None:
    """To the worker, to the framework, or to what they stand on; also those that are switched off."""
    names = environment_file(name).keys() | alternatives(name).keys()
    assert {each for each in names if not each.startswith("OTEL_")} <= KNOWN
    assert {each for each in names if each.startswith("OTEL_")} <= _variables_of("tracing.md")


def _variables_of(page: str) -> set[str]:
    return set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", (REPOSITORY / "docs" / page).read_text(encoding="utf-8")))


@pytest.mark.parametrize("instance", INSTANCES)
@pytest.mark.parametrize("is_on_gpu", [True, False])
def test_every_worker_starts_with_its_files(instance: str, is_on_gpu: bool) -> None:
    """On a GPU as they stand, on a CPU with what is switched off there; nothing is warned about."""
    more: Mapping[str, str] = {} if is_on_gpu else alternatives("worker.env")
    settings = settings_of([], environ_of(instance, **more), ON_GPU if is_on_gpu else ON_CPU)
    assert settings.warnings == ()
    assert settings.model.model == ("Qwen/Qwen3-0.6B" if is_on_gpu else "smollm2-135m")
    assert settings.engine.requested == ("trtllm" if is_on_gpu else "torch")
    assert settings.runtime.discovery_backend == "etcd"
    assert settings.runtime.system_port == 8081 + int(instance)
    assert environ_of(instance)["CUDA_VISIBLE_DEVICES"] == instance


def test_frontends_are_looked_for_where_etcd_listens() -> None:
    """For clients, as in compose; at its next port etcds speak to each other. It is started before."""
    address = urlsplit(environment_file("worker.env")["ETCD_ENDPOINTS"])
    assert address.port in {listener.port for listener in listeners("etcd")}
    assert address.hostname == LOOPBACK
    assert {"etcd.service", "network-online.target"} <= set(Unit().one("After", "Unit").split())


def test_traces_can_be_switched_on_as_they_are_written() -> None:
    """To the port of the protocol that is used, which compose publishes on this machine."""
    environ = environ_of("0", **alternatives("worker.env"))
    address = urlsplit(environ["OTEL_EXPORTER_OTLP_ENDPOINT"])
    assert address.hostname == LOOPBACK
    (published,) = [
        port for port in SERVICES["otel-collector"].ports if port.inside == collector_port(environ)
    ]
    assert address.port == published.outside


def test_a_worker_without_tensorrt_llm_does_not_serve_with_another_engine() -> None:
    """A GPU, torch, and an installation without the extra: the start ends, and says what is missing."""
    facts = replace(ON_GPU, tensorrt_installed=False, tensorrt_version="")
    settings = settings_of([], environ_of("0"), facts)
    with pytest.raises(EngineChoiceError, match="tensorrt"):
        choose_engine(settings.engine.requested, facts, settings.engine.tensorrt_options)


def test_nothing_listens_beyond_this_machine() -> None:
    """Unless somebody changes it, who then needs the secret that is switched off beside it."""
    settings = on_gpu()
    assert settings.runtime.system_host == LOOPBACK
    assert environment_file("worker.env")["DYN_TCP_RPC_HOST"] == LOOPBACK
    assert LOOPBACK in environment_file("worker.env")["ETCD_ENDPOINTS"]
    assert settings.control_token is None
    secret = on_gpu(
        DYN_ACTOR_CONTROL_TOKEN=alternatives("worker.env")["DYN_ACTOR_CONTROL_TOKEN"]
    ).control_token
    assert secret is not None


@pytest.mark.parametrize(
    "line", ["export A=1", "A=1 # why", "A='1'", 'A="1"', "A = 1", "A=", "A=$B", "A=1\nA=2"]
)
def test_lines_that_mean_something_else_to_systemd_are_found(line: str) -> None:
    """Or to a reader who thinks of a shell."""
    with pytest.raises(ValueError, match="A"):
        assignments(line)


def test_no_file_sets_the_managers_own_variables() -> None:
    """Those it gives the worker itself."""
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & environ_of("0").keys()
