"""Whether and how spans leave this process: the framework's own variables, read the way it reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from service.options.errors import ConfigError, Problem
from service.telemetry.line_format import is_truthy

if TYPE_CHECKING:
    from collections.abc import Mapping

Protocol = Literal["grpc", "http/protobuf"]

SWITCH = "OTEL_EXPORT_ENABLED"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_QUEUE = "OTEL_BSP_MAX_QUEUE_SIZE"
_BATCH = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"
_DELAY = "OTEL_BSP_SCHEDULE_DELAY"
# Whatever else it says, a request is recorded when its caller records: others would tear traces apart.
_SAMPLER, _NONE_AT_ALL = "OTEL_TRACES_SAMPLER", "always_off"
# The SDK's own defaults: spans, spans, milliseconds.
_DEFAULT_QUEUE, _DEFAULT_BATCH, _DEFAULT_DELAY_MS = 2048, 512, 5000
# More is a slip of the pen, and not without danger: the SDK's thread dies of a delay that no timer can hold.
_MOST_SPANS, _MOST_DELAY_MS = 1_000_000, 3_600_000
_MOST_DIGITS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """How spans are exported. Endpoint, headers, certificates and time-outs are the SDK's to read.

    queue_spans: most spans that wait for the collector. batch_spans: most in one message to it.
    has_roots: whether spans that nobody else's trace asks for (a drain) are recorded too.
    """

    protocol: Protocol = "grpc"
    queue_spans: int = _DEFAULT_QUEUE
    batch_spans: int = _DEFAULT_BATCH
    delay_ms: int = _DEFAULT_DELAY_MS
    has_roots: bool = True


def read_trace_settings(environ: Mapping[str, str]) -> TraceSettings | None:
    """None when export is off. Raises ConfigError for values that cannot be followed."""
    if not is_truthy(environ.get(SWITCH)) or is_truthy(environ.get("OTEL_SDK_DISABLED")):
        return None
    if environ.get(_SAMPLER) == _NONE_AT_ALL:
        return None
    queue_spans = _whole(environ, _QUEUE, _DEFAULT_QUEUE, _MOST_SPANS)
    return TraceSettings(
        protocol=_protocol(environ),
        queue_spans=queue_spans,
        batch_spans=min(_whole(environ, _BATCH, _DEFAULT_BATCH, _MOST_SPANS), queue_spans),
        delay_ms=_whole(environ, _DELAY, _DEFAULT_DELAY_MS, _MOST_DELAY_MS),
        has_roots=_has_roots(environ),
    )


def _protocol(environ: Mapping[str, str]) -> Protocol:
    for name in _PROTOCOLS:
        match environ.get(name, ""):
            case "":
                continue
            case "grpc":
                return "grpc"
            case "http/protobuf":
                return "http/protobuf"
            case other:
                raise ConfigError([Problem(name, other, "grpc or http/protobuf")])
    return "grpc"


def _whole(environ: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = environ.get(name, "")
    if not text:
        return default
    # Python does not read thousands of digits.
    is_readable = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    if not is_readable or not 1 <= int(text) <= most:
        unit = "milliseconds" if name == _DELAY else "spans"
        raise ConfigError([Problem(name, text, f"a whole number of {unit}, 1 to {most}")])
    return int(text)


def _has_roots(environ: Mapping[str, str]) -> bool:
    sampler = environ.get(_SAMPLER, "")
    ratio = environ.get("OTEL_TRACES_SAMPLE_RATIO", "")
    return not sampler.endswith(_NONE_AT_ALL) and ratio not in ("0", "0.0")
