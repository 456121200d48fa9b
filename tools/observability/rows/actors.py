"""Where requests are inside of a worker, and what is behind."""

from __future__ import annotations

from tools.observability import traces
from tools.observability.panels import GREEN, ORANGE, RED, Kind, Panel, Query, Row, Unit
from tools.observability.selecting import BY_WORKER, WHO, heat, ours, total_rate

_FILL = f"max by (actor) ({ours('mailbox_depth')} / ({ours('mailbox_capacity')} > 0))"

ACTORS = Row(
    "Actors",
    (
        Panel(
            title="Waiting for a place",
            about="Requests that are resolved and only lack a place in the engine.",
            normal="0 unless the engine is full.",
            closer="it grows and does not fall: more load than the engine carries.",
            queries=(Query(f"sum by ({BY_WORKER}) ({ours('requests_waiting')})", WHO),),
            traces=(traces.LONG_WAIT,),
        ),
        Panel(
            title="Live requests",
            about="Requests that are owed an outcome, wherever they are.",
            normal="below --max-live; 0 at rest.",
            closer="it stays up at rest, or is at --max-live: new ones are refused.",
            queries=(Query(f"sum by ({BY_WORKER}) ({ours('requests_live')})", WHO),),
        ),
        Panel(
            title="Requests in the engine",
            about="Requests that the engine holds, until it confirms their end; an aborted one is here and"
            " no longer live.",
            normal="below --max-num-seqs; 0 at rest.",
            closer="it stays above Live requests: the engine does not let go.",
            queries=(Query(f"sum by ({BY_WORKER}) ({ours('requests_in_flight')})", WHO),),
        ),
        Panel(
            title="Mailboxes, how full",
            about="The fullest mailbox of each actor over what fits.",
            normal="near 0.",
            closer="one stays up: that actor, or what it waits for, is behind; at 90 % there is an alert.",
            queries=(Query(_FILL, "{{actor}}"),),
            unit=Unit.SHARE,
            thresholds=((None, GREEN), (0.5, ORANGE), (0.9, RED)),
        ),
        Panel(
            title="Mailboxes, messages",
            about="Messages that wait for an actor, of all workers. resolver_parked: requests whose grammar"
            " or processor is being prepared.",
            normal="near 0.",
            closer="resolver_parked stays up: many new grammars.",
            queries=(Query(f"sum by (actor) ({ours('mailbox_depth')})", "{{actor}}"),),
        ),
        Panel(
            title="Bounds that were reached",
            about="How often a second a bound was reached that no other figure counts.",
            normal="most flat; kv_cache, step_tokens, engine_sequences, outbox, stories, grammar_cache,"
            " tried_processors and trace_answer rise in a day's work.",
            closer="any other one rises all the time: its row on the page of operations says what happens"
            " then.",
            queries=(Query(f"{total_rate('bound_reached_total', by='bound')} > 0", "{{bound}}"),),
            unit=Unit.RATE,
        ),
        Panel(
            title="Time until admission",
            about="The hop intake: arrival to admission.",
            normal="well below a millisecond.",
            closer="it climbs: the event loop is late.",
            queries=heat("hop_seconds", hop="intake"),
            kind=Kind.HEATMAP,
            unit=Unit.SECONDS,
            width=12,
        ),
        Panel(
            title="Time until a request is resolved",
            about="The hop resolve: admission until its options are a spec.",
            normal="below a millisecond; new grammars and processors take longer.",
            closer="most requests are above 10 ms.",
            queries=heat("hop_seconds", hop="resolve"),
            kind=Kind.HEATMAP,
            unit=Unit.SECONDS,
            width=12,
            traces=(traces.SLOW_RESOLVE,),
        ),
    ),
)
