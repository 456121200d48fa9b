"""The process: its event loop, its telemetry, and the framework around it."""

from __future__ import annotations

from tools.observability.panels import GREEN, ORANGE, RED, Panel, Query, Row, Unit
from tools.observability.selecting import BY_WORKER, WHO, of_others, of_our_jobs, ours, quantiles, total_rate

_LATE = (
    f"1 - {total_rate('loop_lag_seconds_bucket', le='0.25', by=BY_WORKER)}"
    f" / {total_rate('loop_lag_seconds_count', by=BY_WORKER)}"
)

PROCESS = Row(
    "Process",
    (
        Panel(
            title="Event loop lag",
            about="How late the event loop woke a timer, twice a second.",
            normal="milliseconds.",
            closer="p99 is above tens of milliseconds: the log line loop.stands_still says who holds the"
            " loop.",
            queries=quantiles("loop_lag_seconds"),
            unit=Unit.SECONDS,
        ),
        Panel(
            title="Event loop lag, the last one",
            about="Of each worker. It stays as it was while a loop stands still.",
            normal="milliseconds.",
            closer="one worker is slower than the others.",
            queries=(Query(f"max by ({BY_WORKER}) ({ours('loop_lag_last_seconds')})", WHO),),
            unit=Unit.SECONDS,
        ),
        Panel(
            title="Timers that were a quarter of a second late",
            about="Their share, of each worker.",
            normal="0.",
            closer="it is above 2 %: there is an alert.",
            queries=(Query(_LATE, WHO),),
            unit=Unit.SHARE,
            thresholds=((None, GREEN), (0.02, RED)),
        ),
        Panel(
            title="Spans lost",
            about="Spans that did not reach the collector, a second.",
            normal="0; shutdown when a worker ends.",
            closer="it rises: the collector is away, refuses or is too slow. Requests are not touched.",
            queries=(Query(total_rate("spans_lost_total", by="reason"), "{{reason}}"),),
            unit=Unit.RATE,
            is_stacked=True,
        ),
        Panel(
            title="Reports that could not be written",
            about="Since the start of each worker, by who should have written them.",
            normal="0.",
            closer="it is 1: a bug in that listener; requests are not touched.",
            queries=(Query(f"sum by (listener) ({ours('telemetry_errors_total')})", "{{listener}}"),),
        ),
        Panel(
            title="Queue of the framework",
            about="Requests that wait in the framework's own queue, before they reach the worker.",
            normal="0.",
            closer="it grows: the event loop does not take them.",
            queries=(Query(f"sum by ({BY_WORKER}) ({of_others('dynamo_work_handler_queue_depth')})", WHO),),
            thresholds=((None, GREEN), (1, ORANGE)),
        ),
        Panel(
            title="Since the last start",
            about="How long each process that is scraped with our workers has been up, also those that"
            " still load.",
            normal="rising lines.",
            closer="a line begins again and again.",
            queries=(Query(f"max by ({BY_WORKER}) ({of_our_jobs('dynamo_component_uptime_seconds')})", WHO),),
            unit=Unit.SECONDS,
            width=12,
        ),
        Panel(
            title="Scrapes",
            about="1 where Prometheus got an answer, 0 where it did not.",
            normal="1.",
            closer="it is 0, or a line ends.",
            queries=(Query(f"min by (job, {BY_WORKER}) ({of_our_jobs('up')})", f"{{{{job}}}} {WHO}"),),
            width=12,
        ),
    ),
)
