"""A fleet as Prometheus sees it while it is updated, in the notation of promtool's unit tests."""

from __future__ import annotations

from dataclasses import dataclass

STEP_S = 15
STEPS = 120
# Ends before the drain begins; drains for a hundred seconds; then one sample each of drained and stopping.
_DRAIN_STEPS = 7
_PER_STEP = {"completed": 12, "stopped_by_frontend": 3, "cancelled": 2}
_OUTCOMES = (*_PER_STEP, "deadline", "stalled", "refused", "failed")
_STATES = ("starting", "loading", "serving", "draining", "drained", "stopping", "failed")

# Metric, own labels, and how much it rises in a step (None: it stays at the second number).
_RISING: tuple[tuple[str, str, int], ...] = (
    ("time_to_first_token_seconds_count", "", 15),
    ("time_to_first_token_seconds_bucket", 'le="1.0"', 15),
    ("time_per_output_token_seconds_count", "", 15),
    ("time_per_output_token_seconds_bucket", 'le="0.1"', 15),
    ("queue_seconds_count", "", 15),
    ("queue_seconds_bucket", 'le="0.01"', 15),
    ("queue_seconds_bucket", 'le="1.0"', 15),
    ("queue_seconds_bucket", 'le="+Inf"', 15),
    ("loop_lag_seconds_count", "", 30),
    ("loop_lag_seconds_bucket", 'le="0.25"', 30),
    ("engine_steps_total", "", 300),
    ("aborts_total", 'result="asked"', 2),
    ("aborts_total", 'result="confirmed"', 2),
    ("kv_events_total", 'result="published"', 100),
    ("bound_reached_total", 'bound="kv_cache"', 20),
    ("bound_reached_total", 'bound="engine_sequences"', 20),
)
_STEADY: tuple[tuple[str, str, int], ...] = (
    ("build_info", 'version="0.1.0", engine="torch", framework_version="1.4.2"', 1),
    ("requests_live", "", 8),
    ("requests_in_flight", "", 8),
    ("mailbox_depth", 'actor="streamer"', 1),
    ("mailbox_capacity", 'actor="streamer"', 4),
    ("kv_blocks", 'state="used"', 40),
    ("kv_blocks", 'state="cached"', 50),
    ("kv_blocks", 'state="free"', 10),
    ("aborts_total", 'result="timed_out"', 0),
    ("memory_asleep", 'memory="kv_cache"', 0),
    ("engine_preemptions_total", "", 0),
    ("kv_events_total", 'result="lost"', 0),
    ("failed_total", 'cause="dead"', 0),
    ("failed_total", 'cause="broken_word"', 0),
    ("rejected_total", 'reason="max_live"', 0),
    ("rejected_total", 'reason="other"', 0),
    ("spans_lost_total", 'reason="export_failed"', 0),
    ("telemetry_errors_total", 'listener="log"', 0),
    ("bound_reached_total", 'bound="control_calls"', 0),
)


@dataclass(frozen=True, slots=True)
class WorkerLife:
    """One worker. begins, ends: steps of its first and last sample; an end is a drain that ends in its time.

    moved: how many of the seven requests that its drain interrupts a frontend can continue elsewhere.
    """

    instance: str
    namespace: str
    begins: int = 0
    ends: int = STEPS
    moved: int = 7

    def series(self) -> list[dict[str, str]]:
        """Everything that the rules read of it."""
        return [
            *self._of_scrape(),
            *(self._ours(name, own, self._rising(step)) for name, own, step in _RISING),
            *(self._ours(name, own, self._steady(value)) for name, own, value in _STEADY),
            *self._requests(),
            *(self._ours("worker_state", f'state="{state}"', self._state(state)) for state in _STATES),
        ]

    def _of_scrape(self) -> list[dict[str, str]]:
        labels = f'job="dynamo-backend", instance="{self.instance}"'
        uptime = f'dynamo_component_uptime_seconds{{{labels}, worker_id="{self.instance}"}}'
        return [
            {"series": f"up{{{labels}}}", "values": self._steady(1)},
            {"series": uptime, "values": self._placed(f"2+{STEP_S}x{self._steps}")},
        ]

    def _requests(self) -> list[dict[str, str]]:
        """Interrupted at the end of the drain, late ones refused during it, spans lost at the very end."""
        rates = [
            self._ours("requests_total", f'outcome="{outcome}"', self._rising(_PER_STEP.get(outcome, 0)))
            for outcome in _OUTCOMES
        ]
        return [
            *rates,
            self._ours("requests_total", 'outcome="interrupted"', self._at_end(2, 7)),
            self._ours("requests_moved_total", "", self._at_end(2, self.moved)),
            self._ours("rejected_total", 'reason="draining"', self._at_end(_DRAIN_STEPS, 4)),
            self._ours("spans_lost_total", 'reason="shutdown"', self._at_end(1, 30)),
        ]

    def _state(self, state: str) -> str:
        if self.ends == STEPS:
            return self._steady(int(state == "serving"))
        serving = self._steps - _DRAIN_STEPS - 2
        plan = ["serving"] * (serving + 1) + ["draining"] * _DRAIN_STEPS + ["drained", "stopping"]
        return self._placed(" ".join(str(int(now == state)) for now in plan))

    def _ours(self, name: str, own: str, values: str) -> dict[str, str]:
        labels = (
            f'job="dynamo-backend", instance="{self.instance}", worker_id="{self.instance}", '
            f'dynamo_namespace="{self.namespace}", dynamo_component="backend", model_name="m"'
        )
        return {
            "series": f"dynamo_actor_{name}{{{own}{', ' if own else ''}{labels}}}",
            "values": values,
        }

    @property
    def _steps(self) -> int:
        return self.ends - self.begins

    def _rising(self, step: int) -> str:
        return self._placed(f"0+{step}x{self._steps}")

    def _steady(self, value: int) -> str:
        return self._placed(f"{value}x{self._steps}")

    def _at_end(self, steps: int, value: int) -> str:
        """0 until so many steps before its last sample, then the value; 0 for ever of who stays."""
        if self.ends == STEPS:
            return self._steady(0)
        return self._placed(f"0x{self._steps - steps} {value}x{steps - 1}")

    def _placed(self, values: str) -> str:
        """Nothing before its first sample; after the last one the series is gone, like its target."""
        before = f"_x{self.begins - 1} " if self.begins else ""
        return before + values + (" stale" if self.ends < STEPS else "")


def update(old: str, new: str, *, moved: int = 7) -> list[dict[str, str]]:
    """Two workers of the namespace `old` make place for two of `new`, one after the other."""
    lives = (
        WorkerLife("a:9090", old, ends=52, moved=moved),
        WorkerLife("b:9090", old, ends=68, moved=moved),
        WorkerLife("c:9090", new, begins=36),
        WorkerLife("d:9090", new, begins=52),
    )
    return [series for life in lives for series in life.series()]
