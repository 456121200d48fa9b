"""What became of requests, and how long they took."""

from __future__ import annotations

from tools.observability import traces
from tools.observability.panels import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    YELLOW,
    Kind,
    Note,
    Panel,
    Query,
    Row,
    Unit,
)
from tools.observability.selecting import heat, quantile, quantiles, rise, total_rate

# What clients and frontends decided for themselves is grey and blue: nobody's fault.
_OUTCOME_COLOURS = (
    ("completed", GREEN),
    ("stopped_by_frontend", BLUE),
    ("cancelled", GREY),
    ("deadline", YELLOW),
    ("stalled", YELLOW),
    ("refused", ORANGE),
    ("interrupted", ORANGE),
    ("failed", RED),
)

_COUNTS = (
    Panel(
        title="How requests ended",
        about="Outcomes, a second. cancelled (the client left) and stopped_by_frontend are no errors.",
        normal="completed, cancelled as clients leave; failed and interrupted flat.",
        closer="failed or interrupted rise, or refused by more than callers' own mistakes.",
        queries=(Query(total_rate("requests_total", by="outcome"), "{{outcome}}"),),
        unit=Unit.PER_SECOND,
        is_stacked=True,
        colours=_OUTCOME_COLOURS,
        traces=(traces.FAILED, traces.INTERRUPTED),
    ),
    Panel(
        title="Failures by cause",
        about="Whose fault it is: the engine's word (engine), its refusal (submit, prepare), nonsense of it"
        " (broken_word), or the death of it or of an actor (dead).",
        normal="flat.",
        closer="it rises; trace --failed names the requests.",
        queries=(Query(total_rate("failed_total", by="cause"), "{{cause}}"),),
        unit=Unit.PER_SECOND,
        is_stacked=True,
        traces=(traces.FAILED,),
    ),
    Panel(
        title="Refused by reason",
        about="Requests that were refused before the engine saw them.",
        normal="invalid_request by callers' mistakes, draining in a rollout; the others flat.",
        closer="max_live, outbox_tokens, intake_full or preparing_full rise: more load than there is room.",
        queries=(Query(total_rate("rejected_total", by="reason"), "{{reason}}"),),
        unit=Unit.PER_SECOND,
        is_stacked=True,
    ),
    Panel(
        title="Ended early, and where",
        about="By whom a request was ended early, and how far it was. client in decode is a reader who has"
        " enough.",
        normal="client as clients leave.",
        closer="client or deadline rise in waiting and prefill: people do not wait for their first token.",
        queries=(
            Query(f"{total_rate('cancellations_total', by='reason, phase')} > 0", "{{reason}} in {{phase}}"),
        ),
        unit=Unit.PER_SECOND,
        is_stacked=True,
    ),
    Panel(
        title="Interrupted, and moved",
        about="What shutdowns ended early; moved ones can be continued by a frontend. Beside it what"
        " frontends moved (of all models, also after deaths).",
        normal="0 but in rollouts, and there as many moved as interrupted.",
        closer="interrupted is above moved: requests were lost. Frontends move none: no --migration-limit.",
        queries=(
            Query(
                rise("requests_total", outcome="interrupted"),
                "interrupted",
            ),
            Query(rise("requests_moved_total"), "moved"),
            Query(
                "sum(increase(dynamo_frontend_model_migration_total[$__rate_interval]))", "moved by frontends"
            ),
        ),
        colours=(("interrupted", ORANGE), ("moved", BLUE), ("moved by frontends", GREY)),
        traces=(traces.INTERRUPTED,),
    ),
    Panel(
        title="Tokens",
        about="Tokens a second: of prompts (input), of those found in the KV cache (input_cached, in input"
        " too), of answers.",
        normal="as requests are.",
        closer="input_cached falls beside input: other prompts, salts, or a cache that is too small.",
        queries=(Query(total_rate("tokens_total", by="direction"), "{{direction}}"),),
        unit=Unit.RATE,
    ),
)

_FIRST_TOKEN = (
    Panel(
        title="Time to first token",
        about="Arrival to first token, of every request that got one. Each field counts requests between"
        " two bounds.",
        normal="one cloud below 1 s.",
        closer="a second cloud appears: requests that wait, or another kind of prompt.",
        queries=heat("time_to_first_token_seconds"),
        kind=Kind.HEATMAP,
        unit=Unit.SECONDS,
        width=12,
        traces=(traces.SLOW_FIRST_TOKEN,),
    ),
    Panel(
        title="Time to first token, quantiles",
        about="The same as p50, p95 and p99.",
        normal="p95 below 1 s, near p50.",
        closer="p95 leaves p50: queues. All rise: prompts, or the engine.",
        queries=quantiles("time_to_first_token_seconds"),
        unit=Unit.SECONDS,
        width=12,
        traces=(traces.SLOW_FIRST_TOKEN, traces.LONG_WAIT),
    ),
)

_TOKENS = (
    Panel(
        title="Time per output token",
        about="Mean gap between two tokens of one choice, one value for each served request.",
        normal="one narrow band: a step of the engine.",
        closer="the band widens or climbs.",
        queries=heat("time_per_output_token_seconds"),
        kind=Kind.HEATMAP,
        unit=Unit.SECONDS,
        width=12,
        traces=(traces.SLOW_TOKENS,),
    ),
    Panel(
        title="Time per output token, quantiles",
        about="The same as p50, p95 and p99.",
        normal="below 0.1 s.",
        closer="it grows with Sequences in the engine: a batch that is too large; without: a slow machine.",
        queries=quantiles("time_per_output_token_seconds"),
        unit=Unit.SECONDS,
        width=12,
        traces=(traces.SLOW_TOKENS,),
    ),
)

_TIMES = (
    Panel(
        title="Wait for the engine",
        about="Arrival to submit at the engine.",
        normal="below a step.",
        closer="it grows: no free place. The alert is at 1 s for p95.",
        queries=quantiles("queue_seconds"),
        unit=Unit.SECONDS,
        traces=(traces.LONG_WAIT,),
    ),
    Panel(
        title="Time in each hop",
        about="p95 of each hop: intake (admission), resolve (options, grammars), execute (waiting and"
        " prefill), stream (first token to the end). The hops of a request add up to its duration.",
        normal="intake and resolve below a millisecond; the last bound is 300 s.",
        closer="resolve is long (grammars, processors) or intake is (the event loop).",
        queries=(Query(quantile(0.95, "hop_seconds", by="hop"), "{{hop}}"),),
        unit=Unit.SECONDS,
        traces=(traces.SLOW_RESOLVE, traces.SLOW_FIRST_TOKEN),
    ),
    Panel(
        title="Duration",
        about="Arrival to outcome, of every request, whatever became of it.",
        normal="as long as the answers are.",
        closer="it grows while tokens of answers do not.",
        queries=quantiles("request_seconds"),
        unit=Unit.SECONDS,
        traces=(traces.LONG_ANSWER,),
    ),
    Panel(
        title="Tokens over chunks",
        about="Tokens of answers for each chunk that was given to the framework.",
        normal="near 1: readers keep up.",
        closer="it grows: readers, frontends or the event loop are behind, and chunks are merged.",
        queries=(
            Query(
                f"{total_rate('tokens_total', direction='output')} / {total_rate('chunks_total')}",
                "tokens a chunk",
            ),
        ),
    ),
    Panel(
        title="Prompts found in the cache",
        about="Share of the tokens of prompts that were not computed again.",
        normal="depends on the prompts.",
        closer="it falls and stays down.",
        queries=(
            Query(
                f"{total_rate('tokens_total', direction='input_cached')}"
                f" / {total_rate('tokens_total', direction='input')}",
                "cached",
            ),
        ),
        unit=Unit.SHARE,
    ),
)

_TO_ONE_REQUEST = Note(
    "From a graph to one request",
    "A point of a graph names no request: `/metrics` has no exemplars.\n\n"
    "* **Traces**: click on a line of a panel about time or failures and follow *Traces: ...*: Tempo is"
    " searched for requests that are like it, in the time that is shown. They are there if they were"
    " sampled (`OTEL_EXPORT_ENABLED`).\n"
    "* **Logs**: a trace's id is `trace_id` in the line `request.ended` (with `OTEL_EXPORT_ENABLED=1` or"
    " `DYN_LOGGING_JSONL=1`): one line for every request, sampled or not, with its times and outcome.\n"
    "* **Without either**: `dynamo-actor-worker trace --slowest` (or `--failed`, `--last`, or any id) at the"
    " worker.",
)

REQUESTS = Row("Requests", (*_COUNTS, *_FIRST_TOKEN, *_TOKENS, *_TIMES, _TO_ONE_REQUEST))
