"""Which frameworks are accepted, and that each is given only the fields it has."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from typing import Any

import pytest
from dynamo.common.backend.worker import WorkerConfig

from service import framework
from service.framework import (
    UnsupportedFramework,
    build_worker_config,
    check_version,
    deadline_status,
    framework_facts,
)


@pytest.mark.parametrize(
    "version",
    ["1.4.2", "1.4.2.post1", "1.4.3", "1.4.10", "1.5.0", "1.5.0rc1", "1.5", "1.6.1", "1.6.99",
     "1.6.0.dev20260101", "1.6.1+cu130"],
)  # fmt: skip
def test_versions_that_are_accepted(version: str) -> None:
    """From 1.4.2 up to, not including, 1.7; pre-releases count as what they precede."""
    check_version(version)


@pytest.mark.parametrize(
    "version",
    ["1.4.1", "1.4", "1.4.0rc9", "1.3.1", "0.9.0", "1.7.0", "1.7", "1.7.0rc1", "1.7.0.dev1", "1.10.0",
     "2.0.0", "", "unknown", "v1.4.2", "1", "1.x.2"],
)  # fmt: skip
def test_versions_that_are_refused(version: str) -> None:
    """With the version found and the range."""
    with pytest.raises(UnsupportedFramework, match=r"1\.4\.2 up to, not including, 1\.7"):
        check_version(version)


def test_the_installed_version_is_accepted() -> None:
    """What the lock file pins is in the range."""
    check_version(framework.installed_version())


@pytest.mark.parametrize(
    ("version", "status"), [("1.4.2", 504), ("1.4.9", 504), ("1.5.0", 499), ("1.6.1", 499), ("1.6.1rc1", 499)]
)
def test_a_passed_deadline_never_looks_like_a_dead_worker(version: str, status: int) -> None:
    """Where a frontend takes 504 for a worker out of reach, one slow request would stop its neighbours."""
    assert deadline_status(version) == status


@dataclass
class Later:
    """WorkerConfig of a later framework: some fields are gone, some are new."""

    namespace: str
    component: str = "backend"
    structural_tag: dict[str, Any] | None = None
    response_plane: str = "tcp"
    new_in_1_9: int = field(default=5)


def test_a_field_that_is_not_there_is_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that is, is; what we do not know keeps its default."""
    monkeypatch.setattr(framework, "WorkerConfig", Later)
    config: Any = build_worker_config(
        {"namespace": "n", "structural_tag_mode": "on", "response_plane": "quic", "kv_state_endpoint": "x"}
    )
    assert config == Later(namespace="n", response_plane="quic")


@pytest.mark.parametrize(
    "missing", ["kv_state_endpoint", "default_thinking_mode", "event_plane", "tool_call_parser"]
)
def test_every_field_may_be_missing(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """Whatever a framework dropped: the others arrive."""
    names = {"namespace", "kv_state_endpoint", "default_thinking_mode", "event_plane", "tool_call_parser"}
    smaller = make_dataclass("Smaller", [(name, Any, None) for name in sorted(names - {missing})])
    monkeypatch.setattr(framework, "WorkerConfig", smaller)
    config = build_worker_config(dict.fromkeys(names, "given"))
    assert {name: getattr(config, name) for name in names - {missing}} == dict.fromkeys(
        names - {missing}, "given"
    )


def test_the_facts_are_the_installed_frameworks() -> None:
    """The options judge by these."""
    facts = framework_facts()
    assert facts.version == framework.installed_version()
    assert {"namespace", "component", "request_plane"} <= facts.worker_config_fields
    assert len(facts.tool_parsers()) > 0
    assert len(facts.reasoning_parsers()) > 0


def test_the_installed_config_takes_what_it_has() -> None:
    """The real dataclass, built from names of two versions."""
    config = build_worker_config(
        {
            "namespace": "n",
            "component": "c",
            "structural_tag": None,
            "response_plane": "tcp",
            "model_input": None,
        }
    )
    assert isinstance(config, WorkerConfig)
    assert (config.namespace, config.component) == ("n", "c")
