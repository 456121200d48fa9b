"""A slice of the fuzzer, and that it would find what it looks for. All of it: ``make fuzz``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from protocols.errors import InvalidRequest
from protocols.requests import GenerateRequest, decode_request
from tests.fuzz.in_process import Findings, attack_engine
from tests.fuzz.workers import synthetic_engine, torch_engine

if TYPE_CHECKING:
    from pathlib import Path

    from protocols.engine import Engine

pytestmark = pytest.mark.timeout(180)

_SEED = 4


def attack(engine: Engine, requests: int) -> Findings:
    return attack_engine(engine, requests, _SEED, lambda _line: None)


def test_hostile_requests_break_no_promise() -> None:
    """One last word or one refusal by name each, valid ones between them exact, and nothing left behind."""
    findings = attack(synthetic_engine(), 2_000)
    assert findings.violations == []
    assert findings.requests == 2_000
    assert min(findings.kinds["InvalidArgument"], findings.kinds["length"]) > 200
    assert findings.kinds["valid, served exactly"] >= 100


def test_hostile_constraints_and_processors_break_no_promise(tmp_path: Path) -> None:
    """The same on an engine that obeys constraints and runs what an operator registered, broken or not."""
    findings = attack(torch_engine(tmp_path), 60)
    assert findings.violations == []


def test_a_field_that_is_passed_over_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that serves what the schema forbids is a violation."""

    def lenient(wire: Any) -> GenerateRequest:
        try:
            return decode_request(wire)
        except InvalidRequest as exc:
            if not exc.field.startswith("stop_conditions"):
                raise
            return decode_request({**wire, "stop_conditions": {"max_tokens": 2}})

    monkeypatch.setattr("actors.intake.decode_request", lenient)
    violations = attack(synthetic_engine(), 400).violations
    assert any("the schema forbids" in flaw for flaw, _ in violations)


def test_a_field_that_is_named_wrongly_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal that points somewhere else is a violation."""

    def misleading(wire: Any) -> GenerateRequest:
        try:
            return decode_request(wire)
        except InvalidRequest as exc:
            raise InvalidRequest("bootstrap_info", exc.value, exc.allowed) from None

    monkeypatch.setattr("actors.intake.decode_request", misleading)
    violations = attack(synthetic_engine(), 400).violations
    assert any("a refusal names 'bootstrap_info'" in flaw for flaw, _ in violations)


def test_what_a_request_leaves_behind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger that keeps its reservations is a violation."""
    monkeypatch.setattr("actors.ledger.Ledger.release", lambda _ledger, _ticket: None)
    violations = attack(synthetic_engine(), 60).violations
    assert any("reserved_tokens is" in flaw for flaw, _ in violations)


def test_content_in_the_log_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that says what was asked is a violation."""

    def tell(log: Any, key: str) -> None:
        log._requests.warning("request.unknown_key", key="zq7secret")

    monkeypatch.setattr("service.telemetry.request_log.RequestLog.request_named_unknown", tell)
    violations = attack(synthetic_engine(), 400).violations
    assert any("the log shows content" in flaw for flaw, _ in violations)
