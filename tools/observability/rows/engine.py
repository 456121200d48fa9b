"""The engine below a worker, as the worker sees it."""

from __future__ import annotations

from tools.observability import traces
from tools.observability.panels import BLUE, GREEN, GREY, ORANGE, RED, Kind, Panel, Query, Row, Unit
from tools.observability.selecting import BY_WORKER, WHO, heat, of_others, ours, quantiles, rate, total_rate

_USED = f"sum by ({BY_WORKER}) ({ours('kv_blocks', state='used')})"
_ALL = f"sum by ({BY_WORKER}) ({ours('kv_blocks')})"

_STEPS = (
    Panel(
        title="Engine step",
        about="How long an iteration takes; with TensorRT-LLM what it said in one turn of the event loop.",
        normal="steady for a steady batch.",
        closer="it grows with the batch unchanged: other work on the machine, heat, clocks.",
        queries=quantiles("engine_step_seconds"),
        unit=Unit.SECONDS,
    ),
    Panel(
        title="Engine steps",
        about="The same, each field counts steps between two bounds.",
        normal="one band, a second one for steps with prompts.",
        closer="long steps appear among short ones.",
        queries=heat("engine_step_seconds"),
        kind=Kind.HEATMAP,
        unit=Unit.SECONDS,
    ),
    Panel(
        title="Steps a second",
        about="Iterations of each engine.",
        normal="rises while requests run; 0 at rest.",
        closer="it is 0 with requests in the engine: the alert comes after five minutes.",
        queries=(Query(total_rate("engine_steps_total", by=BY_WORKER), WHO),),
        unit=Unit.RATE,
    ),
    Panel(
        title="Sequences in the engine",
        about="Sequences that the engine holds; a request has n of them.",
        normal="below --max-num-seqs; 0 at rest.",
        closer="it is at --max-num-seqs all the time: the engine is full.",
        queries=(Query(f"sum by ({BY_WORKER}) ({ours('engine_running_sequences')})", WHO),),
    ),
)

_MEMORY = (
    Panel(
        title="KV blocks",
        about="Blocks of the paged KV cache: held by requests (used), kept for reuse and free when needed"
        " (cached), without content (free). No series where the engine does not tell; TensorRT-LLM counts"
        " cached as free.",
        normal="used below all; used 0 at rest.",
        closer="used stays at all.",
        queries=(Query(f"sum by (state) ({ours('kv_blocks')})", "{{state}}"),),
        is_stacked=True,
        colours=(("used", ORANGE), ("cached", BLUE), ("free", GREEN)),
    ),
    Panel(
        title="KV blocks in use",
        about="Blocks that requests hold over all, of each worker.",
        normal="below 95 %.",
        closer="it is above for minutes: requests wait for memory, or take it from each other.",
        queries=(Query(f"{_USED} / ({_ALL} > 0)", WHO),),
        unit=Unit.SHARE,
        thresholds=((None, GREEN), (0.95, RED)),
    ),
    Panel(
        title="Preemptions",
        about="Sequences a second that gave their blocks back and are computed again. Not told by"
        " TensorRT-LLM.",
        normal="flat.",
        closer="it rises: too little memory for the load.",
        queries=(Query(total_rate("engine_preemptions_total", by=BY_WORKER), WHO),),
        unit=Unit.RATE,
        traces=(traces.PREEMPTED,),
    ),
    Panel(
        title="TensorRT-LLM's own queue",
        about="Requests that wait inside of TensorRT-LLM, and those that it paused for want of memory"
        " (--publish-metrics).",
        normal="waiting at most --engine-queue; paused 0.",
        closer="paused is above 0: less load, or more memory for the cache.",
        queries=(
            Query(f"sum by ({BY_WORKER}) ({of_others('trtllm_num_requests_waiting')})", f"waiting {WHO}"),
            Query(f"sum by ({BY_WORKER}) ({of_others('trtllm_num_paused_requests')})", f"paused {WHO}"),
        ),
    ),
    Panel(
        title="KV events for routers",
        about="Events of the KV cache a second, by what became of them (--publish-kv-events).",
        normal="published only.",
        closer="any other rises: routers know less, or more, than there is.",
        queries=(Query(f"{total_rate('kv_events_total', by='result')} > 0", "{{result}}"),),
        unit=Unit.RATE,
        colours=(
            ("published", GREEN),
            ("failed", RED),
            ("malformed", RED),
            ("forgotten", ORANGE),
            ("lost", ORANGE),
        ),
    ),
)

_ENDS = (
    Panel(
        title="Aborts",
        about="Aborts at the engine a second: asked minus confirmed are under way.",
        normal="asked and confirmed alike, as clients leave; timed_out 0.",
        closer="timed_out rises: a place is lost until the engine lets go.",
        queries=(Query(total_rate("aborts_total", by="result"), "{{result}}"),),
        unit=Unit.RATE,
        colours=(("asked", BLUE), ("confirmed", GREY), ("timed_out", RED)),
        traces=(traces.LATE_ABORTS,),
    ),
    Panel(
        title="Time until an abort is confirmed",
        about="From telling the engine that a request ends to its confirmation.",
        normal="about a step.",
        closer="it is many steps.",
        queries=quantiles("abort_seconds"),
        unit=Unit.SECONDS,
    ),
    Panel(
        title="Logits processors, time for a token",
        about="Time in each logits processor over the tokens that it was asked for.",
        normal="well below a millisecond.",
        closer="it is more: that processor slows its own requests.",
        queries=(
            Query(
                f"sum by (processor) ({rate('logits_processor_seconds_total')})"
                f" / sum by (processor) ({rate('logits_processor_tokens_total')})",
                "{{processor}}",
            ),
        ),
        unit=Unit.SECONDS,
    ),
)

ENGINE = Row("Engine", (*_STEPS, *_MEMORY, *_ENDS))
