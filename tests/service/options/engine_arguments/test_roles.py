"""Roles that hand KV caches over: the way, and the time that a prefill worker keeps them."""

from __future__ import annotations

import pytest

from protocols.spec import Stage
from tests.service.options.engine_arguments.words import DECODE, PREFILL, TRTLLM, arguments_of, override
from tests.service.options.world import load, refused


@pytest.mark.parametrize(("words", "role"), [(PREFILL, Stage.PREFILL), (DECODE, Stage.DECODE)])
def test_roles_hand_over_with_ucx_unless_told_otherwise(words: tuple[str, str], role: Stage) -> None:
    """Another back-end is kept, and so is what else a file says about the way."""
    assert arguments_of(*words).values["cache_transceiver_config"] == {"backend": "UCX"}
    kept = arguments_of(*words, override(cache_transceiver_config={"backend": "NIXL"}))
    assert kept.values["cache_transceiver_config"] == {"backend": "NIXL"}
    merged = arguments_of(*words, override(cache_transceiver_config={"kv_transfer_timeout_ms": 500}))
    assert merged.values["cache_transceiver_config"] == {"backend": "UCX", "kv_transfer_timeout_ms": 500}
    assert merged.role is role


@pytest.mark.parametrize("value", [None, {"backend": None}])
def test_a_role_that_hands_over_needs_a_way(value: object) -> None:
    """Switched off, every request would fail in the engine."""
    line = refused(*TRTLLM, *PREFILL, override(cache_transceiver_config=value))
    assert line.startswith("--override-engine-args:cache_transceiver_config")
    assert "--disaggregation-mode prefill needs that" in line


@pytest.mark.parametrize(
    ("drain_s", "kept_ms", "is_told"),
    [(None, None, True), (59, None, True), (60, None, False), (None, 35_000, False), (None, 35_001, True)],
)
def test_a_drain_that_ends_before_its_transfers_is_told(
    drain_s: int | None, kept_ms: int | None, is_told: bool
) -> None:
    """Decode workers would lose what they read. A default is called one; other roles hand nothing over."""
    words = [] if drain_s is None else ["--drain-timeout", str(drain_s)]
    if kept_ms is not None:
        words += [override(cache_transceiver_config={"kv_transfer_timeout_ms": kept_ms})]
    drain = "the default drain of 35 s" if drain_s is None else f"--drain-timeout: a drain of {drain_s} s"
    beginning = f"{drain} ends before the {(kept_ms or 60_000) / 1000:g} s"
    told = load(*TRTLLM, *PREFILL, *words).warnings
    assert [line.startswith(beginning) for line in told] == [True] * is_told
    assert all(" give --drain-timeout " in line and " a grace period " in line for line in told)
    assert load(*TRTLLM, *DECODE, *words).warnings == ()


def test_a_time_in_quotes_is_a_time() -> None:
    """A prefill worker counts with it; what is no time at all is refused before."""
    quoted = override(cache_transceiver_config={"kv_transfer_timeout_ms": "90000"})
    (warning,) = load(*TRTLLM, *PREFILL, quoted, "--drain-timeout", "80").warnings
    assert "ends before the 90 s" in warning
    wordy = override(cache_transceiver_config={"kv_transfer_timeout_ms": "60s"})
    path = "--override-engine-args:cache_transceiver_config.kv_transfer_timeout_ms"
    line = f"{path}: value '60s': allowed: a whole number from 1 up"
    assert refused(*TRTLLM, *PREFILL, wordy) == line


def test_a_prefill_worker_must_know_how_long_it_is_read() -> None:
    """No time at all would leave it unsure for ever; a decode worker does not care."""
    endless = override(cache_transceiver_config={"kv_transfer_timeout_ms": None})
    line = refused(*TRTLLM, *PREFILL, endless)
    assert line.startswith("--override-engine-args:cache_transceiver_config.kv_transfer_timeout_ms: ")
    assert line.endswith("give milliseconds")
    of_decode = arguments_of(*DECODE, endless).values["cache_transceiver_config"]
    assert of_decode == {"backend": "UCX", "kv_transfer_timeout_ms": None}


@pytest.mark.parametrize(
    ("role", "component"), [("agg", "backend"), ("decode", "backend"), ("prefill", "prefill")]
)
def test_a_prefill_worker_registers_beside_the_others(role: str, component: str) -> None:
    """As upstream; an endpoint that was given names everything itself."""
    words = [*TRTLLM, "--disaggregation-mode", role]
    assert load(*words).runtime.component == component
    assert load(*words, "--endpoint", "a.b.c").runtime.component == "b"
