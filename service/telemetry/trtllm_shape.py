"""Figures of our own engines in the shape of TensorRT-LLM's: its names behind our prefix, its labels.

A dashboard made for ``trtllm_`` shows these after one search and replace. TensorRT-LLM itself brings
its own, so there are none of these beside it. All of it is derived at the scrape from what is counted
anyway, but for the few figures that only the end of a request tells. What an engine of ours cannot
know is left out: docs/metrics.md lists it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from protocols.errors import FailureCause
from protocols.telemetry import CancelReason, Outcome
from service.telemetry.buckets import FIRST_TOKEN_S, REQUEST_S
from service.telemetry.families import PREFIX, Counter, Histogram
from service.telemetry.figures import SERVED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client.metrics_core import Metric

    from protocols.telemetry import RequestStory
    from service.telemetry.figures import Figures
    from service.telemetry.live import LiveGauges
    from service.telemetry.request_metrics import RequestMetrics

# By the word of --engine, and whether it has a paged KV cache.
OUR_ENGINES = {"torch": True, "synthetic": False}
_LABELS = ("model_name", "engine_type")
# The words of the label ``finished_reason``: an end-of-sequence token is a stop there.
_REASONS = {"stop": "stop", "eos": "stop", "length": "length", "cancelled": "cancelled"}
# What the facade's errors stand for; what a frontend makes of them is its own business.
_REFUSED = {"invalid_request": "400", "other": "500", "draining": "503"}
_OVERLOADED = "429"
_ENDED = {Outcome.DEADLINE: "504", Outcome.STALLED: "500", Outcome.INTERRUPTED: "503"}
# Whole blocks, of every request.
_REUSE = {"enable_block_reuse": "True", "enable_partial_reuse": "False"}
_HTTP_CODES: tuple[str, ...] = ("400", "429", "500", "503", "504")


class TrtllmShape:
    """A collector in the sense of prometheus_client. `request_ended` belongs to the event loop.

    served: requests that got all they asked for; the four durations are theirs alone.
    """

    def __init__(self, model_name: str, engine: str, requests: RequestMetrics, live: LiveGauges) -> None:
        self._values = (model_name, engine)
        self._has_cache = OUR_ENGINES[engine]
        self._requests = requests
        self._live = live
        self._finished = {reason: Counter() for reason in _REASONS.values()}
        self._served = Histogram(REQUEST_S)
        self._prefill = Histogram(FIRST_TOKEN_S)
        self._decode = Histogram(REQUEST_S)
        self._inference = Histogram(REQUEST_S)
        self._reused_blocks, self._missed_blocks = Counter(), Counter()

    def request_ended(self, story: RequestStory, figures: Figures) -> None:
        """Note how it ended and, of one that was served, how long its parts took."""
        if story.finish_reason is not None:
            self._finished[_REASONS[story.finish_reason]].inc()
        if figures.ttft_s is None or figures.queue_s is None:
            return
        self._note_blocks(story)
        if story.outcome in SERVED:
            self._served.observe(figures.request_s)
            self._prefill.observe(figures.ttft_s - figures.queue_s)
            self._decode.observe(figures.request_s - figures.ttft_s)
            self._inference.observe(figures.request_s - figures.queue_s)

    def _note_blocks(self, story: RequestStory) -> None:
        """Blocks of a prompt that was computed: found in the cache, or not."""
        info = self._live.info
        if info is None or not info.block_tokens:
            return
        reused = story.cached_tokens // info.block_tokens
        self._reused_blocks.inc(reused)
        self._missed_blocks.inc(-(-story.prompt_tokens // info.block_tokens) - reused)

    def describe(self) -> Iterable[Metric]:
        """The names, for the registry's check that nobody else has them."""
        return self.collect()

    def collect(self) -> Iterable[Metric]:
        """Any thread."""
        yield from self._counters()
        yield from self._histograms()
        yield from self._gauges()
        yield from self._configs()
        if self._has_cache:
            yield from self._cache()

    def _counters(self) -> Iterable[Metric]:
        counted = self._requests
        yield self._by(
            "request_success_total",
            "Requests whose last word was a reason to finish.",
            "finished_reason",
            {reason: counter.value for reason, counter in self._finished.items()},
        )
        text = "Requests whose last word was an error, by the status it stands for."
        yield self._by("request_error_total", text, "http_code", self._errors())
        yield self._counter("prompt_tokens_total", "Tokens of prompts.", counted.input_tokens.value)
        text = "Tokens of answers, counted as they come."
        yield self._counter("generation_tokens_total", text, counted.output_tokens.value)
        text = "Tokens of prompts that were in the KV cache."
        yield self._counter("prompt_cached_tokens_total", text, counted.cached_tokens.value)
        served = sum(counted.outcomes[outcome].value for outcome in SERVED)
        text = "Requests that got all they asked for."
        yield self._counter("num_requests_completed_total", text, served)
        left = sum(
            counter.value
            for (reason, _), counter in counted.cancelled.items()
            if reason is CancelReason.CLIENT
        )
        text = "Requests that their client, or the frontend, ended."
        yield self._counter("num_aborted_requests_total", text, left)

    def _errors(self) -> dict[str, float]:
        codes: dict[str, float] = dict.fromkeys(_HTTP_CODES, 0)
        for reason, counter in self._requests.rejected.items():
            codes[_REFUSED.get(reason, _OVERLOADED)] += counter.value
        for outcome, code in _ENDED.items():
            codes[code] += self._requests.outcomes[outcome].value
        for cause, counter in self._requests.failed.items():
            codes["503" if cause is FailureCause.DEAD else "500"] += counter.value
        return codes

    def _histograms(self) -> Iterable[Metric]:
        counted = self._requests
        yield self._histogram("e2e_request_latency_seconds", "Arrival to the last token.", self._served)
        text = "Arrival to the first token."
        yield self._histogram("time_to_first_token_seconds", text, counted.first_token)
        text = "Mean gap between two tokens of one choice."
        yield self._histogram("time_per_output_token_seconds", text, counted.per_token)
        text = "Arrival to submit at the engine."
        yield self._histogram("request_queue_time_seconds", text, counted.queue)
        text = "Submit at the engine to the first token."
        yield self._histogram("request_prefill_time_seconds", text, self._prefill)
        text = "First token to the last one."
        yield self._histogram("request_decode_time_seconds", text, self._decode)
        text = "Submit at the engine to the last token."
        yield self._histogram("request_inference_time_seconds", text, self._inference)

    def _gauges(self) -> Iterable[Metric]:
        text = "Requests the engine holds."
        yield self._gauge("num_requests_running", text, self._live.running_requests)
        text = "Requests that wait for a slot of the engine."
        yield self._gauge("num_requests_waiting", text, self._live.waiting_requests)
        yield self._gauge("iteration_latency_seconds", "The engine's last iteration.", self._live.step_s)

    def _cache(self) -> Iterable[Metric]:
        info = self._live.info
        most = 0 if info is None else info.all_blocks or 0
        size = 0 if info is None else info.block_tokens or 0
        used, reused, missed = self._live.used_blocks, self._reused_blocks.value, self._missed_blocks.value
        text = "Blocks of prompts that were in the KV cache."
        yield self._counter("kv_cache_reused_blocks_total", text, reused)
        text = "Blocks of prompts that were computed."
        yield self._counter("kv_cache_missed_blocks_total", text, missed)
        text = "Reused blocks over all blocks of prompts."
        yield self._gauge("kv_cache_hit_rate", text, reused / (reused + missed) if reused else 0.0)
        text = "Blocks that requests hold over all blocks."
        yield self._gauge("kv_cache_utilization", text, used / most if most else 0.0)
        yield self._gauge("kv_cache_max_blocks", "Blocks of the KV cache.", most)
        text = "Blocks that no request holds, those kept for reuse included."
        yield self._gauge("kv_cache_free_blocks", text, max(0, most - used))
        yield self._gauge("kv_cache_used_blocks", "Blocks that requests hold.", used)
        yield self._gauge("kv_cache_tokens_per_block", "Tokens of one block.", size)

    def _configs(self) -> Iterable[Metric]:
        """Of an engine that has not started only the names are known."""
        info = self._live.info
        kinds = ("tensor", "pipeline", "context", "expert")
        alone = {f"{kind}_parallel_size": "1" for kind in kinds}
        yield self._config("parallel_config_info", "How many devices share the work, as labels.", alone)
        model = cache = None
        if info is not None:
            length = str(info.context_length)
            model = {"model": info.model, "served_model_name": self._values[0], "max_model_len": length}
            cache = {"page_size": str(info.block_tokens), **_REUSE}
        yield self._config("model_config_info", "The model, as labels.", model)
        if self._has_cache:
            yield self._config("kv_cache_config_info", "The KV cache, as labels.", cache)

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(_name(name), text, labels=_LABELS)
        family.add_metric(self._values, value)
        return family

    def _by(self, name: str, text: str, label: str, counts: Mapping[str, float]) -> Metric:
        family = CounterMetricFamily(_name(name), text, labels=(*_LABELS, label))
        for value, count in counts.items():
            family.add_metric((*self._values, value), count)
        return family

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(_name(name), text, labels=_LABELS)
        family.add_metric(self._values, value)
        return family

    def _histogram(self, name: str, text: str, histogram: Histogram) -> Metric:
        family = HistogramMetricFamily(_name(name), text, labels=_LABELS)
        family.add_metric(self._values, histogram.buckets(), histogram.total)
        return family

    def _config(self, name: str, text: str, facts: Mapping[str, str] | None) -> Metric:
        family = GaugeMetricFamily(_name(name), text, labels=(*_LABELS, *(facts or ())))
        if facts is not None:
            family.add_metric((*self._values, *facts.values()), 1)
        return family


def _name(suffix: str) -> str:
    return f"{PREFIX}trtllm_{suffix}"
