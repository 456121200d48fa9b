"""Facades for the fuzzer, with their real recorder, spans and log: on the engines synthetic and torch."""

from __future__ import annotations

import json
import logging
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from actors.engines.synthetic import SyntheticConfig, SyntheticEngine
from service.telemetry.exporting import Pipeline
from service.telemetry.metrics import Metrics
from service.telemetry.recorder import Recorder
from service.telemetry.request_log import RequestLog
from service.telemetry.span_attributes import RequestAttributes
from service.telemetry.spans import Spans, resource_of
from service.telemetry.stories import Stories
from service.telemetry.trace_settings import TraceSettings
from tests.fuzz.values import SECRET
from tests.service.worker import FacadeWorker

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from opentelemetry.sdk.trace import ReadableSpan

    from protocols.engine import Engine
    from tests.doubles.bridge import LoopThread

# Short contexts: a request that asks for everything is over soon.
CONTEXT_TOKENS = 64
# A list of token ids, however it is written.
_IDS = re.compile(r"\d+, ?\d+, ?\d+")
_MOST_KEPT = 20


def shows_content(text: str) -> bool:
    """Whether something of a request's content is in it."""
    return SECRET in text or _IDS.search(text) is not None


class LogWatch(logging.Handler):
    """Reads every line of the worker's log, and keeps those that show content or a bug."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines = 0
        self.bad: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self.lines += 1
        is_bug = "internal_error" in text or "listener_failed" in text
        if (is_bug or shows_content(text)) and len(self.bad) < _MOST_KEPT:
            self.bad.append(text[:500])


class SpanWatch(SpanExporter):
    """Reads every span that would leave the process, and keeps those that show content."""

    def __init__(self) -> None:
        self.spans = 0
        self.bad: list[str] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += len(spans)
        texts = [f"{span.name} {dict(span.attributes or {})}" for span in spans]
        self.bad += [text[:500] for text in texts if shows_content(text)][: _MOST_KEPT - len(self.bad)]
        return SpanExportResult.SUCCESS


@contextmanager
def watched_log() -> Generator[LogWatch]:
    """All of our own loggers, at every level, into one watch and nowhere else."""
    watch = LogWatch()
    loggers = [logging.getLogger(name) for name in ("service", "actor", "actors")]
    # A worker that changes levels adds a handler of its own, and turns `propagate` off with it.
    before = [(logger, logger.level, logger.propagate, logger.handlers[:]) for logger in loggers]
    for logger in loggers:
        logger.addHandler(watch)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
    try:
        yield watch
    finally:
        for logger, level, propagate, handlers in before:
            logger.handlers[:] = handlers
            logger.setLevel(level)
            logger.propagate = propagate


def fuzzed_worker(loop: LoopThread, engine: Engine, spans: SpanWatch, **settings: Any) -> FacadeWorker:
    """Started, with the real metrics, stories, log and spans behind it. settings: of the graph."""
    name, can = engine.name, engine.capabilities
    metrics = Metrics(version="0", engine=name, framework_version="0", capabilities=can)
    pipeline = Pipeline(TraceSettings(), spans, lambda _reason, _count: None)
    attributes = RequestAttributes(version="0", engine=name, model="m")
    recorder: Any = Recorder(
        metrics,
        Stories(),
        RequestLog(),
        Spans(pipeline, resource_of("0", "fuzz"), attributes, has_roots=True),
    )
    return FacadeWorker(loop, engine, recorder=recorder, **settings).open()


def synthetic_engine() -> SyntheticEngine:
    """As fast as it is read."""
    config = SyntheticConfig(context_length=CONTEXT_TOKENS, max_num_seqs=256, step_ms=0.0)
    return SyntheticEngine(config)


def write_tiny_model(folder: Path) -> Path:
    """Random weights whose words are bytes, with a template for chats."""
    from tests.actors.engines.torch.tiny_models import make_model, save
    from tests.conformance.byte_tokenizer import END_ID, write_byte_tokenizer

    save(make_model("llama", eos_token_id=END_ID), folder)
    write_byte_tokenizer(folder)
    path = folder / "tokenizer_config.json"
    facts = json.loads(path.read_text(encoding="utf-8"))
    facts["chat_template"] = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    path.write_text(json.dumps(facts), encoding="utf-8")
    return folder


def torch_engine(folder: Path) -> Engine:
    """A tiny random model whose words are bytes, and every broken logits processor there is."""
    from actors.engines.torch import TorchConfig, TorchEngine
    from tests.actors.engines.torch.hostile_processors import BROKEN, ODD, SlowToMake, Temperature

    write_tiny_model(folder)
    broken = {name: factory for name, (factory, _) in BROKEN.items()}
    return TorchEngine(
        TorchConfig(
            model_path=folder,
            device="cpu",
            max_num_seqs=8,
            step_tokens=96,
            max_seq_len=96,
            kv_pool_tokens=512,
            threads=1,
            processors={**broken, **ODD, "cool": Temperature, "slow-to-make": SlowToMake},
        )
    )
