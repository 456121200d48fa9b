"""How workers come, leave and sleep."""

from __future__ import annotations

from tools.observability import traces
from tools.observability.panels import BLUE, GREEN, GREY, ORANGE, RED, YELLOW, Kind, Panel, Query, Row, Unit
from tools.observability.selecting import BY_WORKER, WHO, of_others, of_our_jobs, ours

# In the order of a life. A number stands for each, as a timeline shows numbers.
_STATES = (
    ("starting", GREY),
    ("loading", GREY),
    ("serving", GREEN),
    ("draining", YELLOW),
    ("drained", BLUE),
    ("stopping", ORANGE),
    ("failed", RED),
)

_WITHOUT_FIGURES = "(dynamo_component_uptime_seconds unless on (job, instance) dynamo_actor_build_info)"


def _state_number() -> str:
    """The number of the state that a worker is in; all others are 0."""
    numbered = " or ".join(
        f"{ours('worker_state', state=state)} * {number}"
        for number, (state, _) in enumerate(_STATES, start=1)
    )
    return f"max by ({BY_WORKER}) ({numbered})"


LIFECYCLE = Row(
    "Lifecycle and drain",
    (
        Panel(
            title="Life of workers",
            about="The state of each worker. A worker that loads shows none yet.",
            normal="serving from end to end, with drains in rollouts.",
            closer="drained stays (by hand, or asleep), draining is longer than the budget, or failed"
            " appears.",
            queries=(Query(_state_number(), WHO),),
            kind=Kind.STATES,
            width=24,
            words=tuple((number, state, colour) for number, (state, colour) in enumerate(_STATES, start=1)),
            traces=(traces.DRAINS,),
        ),
        Panel(
            title="Requests that a drain waits for",
            about="Of each worker that drains.",
            normal="0, and falling in a drain.",
            closer="it stands still: long answers, or readers that sleep.",
            queries=(Query(f"sum by ({BY_WORKER}) ({ours('drain_remaining_requests')})", WHO),),
            traces=(traces.DRAINS,),
        ),
        Panel(
            title="How long drains took",
            about="From the stop being asked for to the last outcome; the grace period is in it. The last"
            " figures of a process that ends may be missed by the scrape.",
            normal="below the grace period and --drain-timeout together.",
            closer="it is at the whole budget: requests are moved or lost then.",
            queries=(
                Query(
                    f"histogram_quantile(0.95, sum by (le) (increase({ours('drain_seconds_bucket')}[1h])))",
                    "p95 of an hour",
                ),
            ),
            unit=Unit.SECONDS,
            traces=(traces.DRAINS,),
        ),
        Panel(
            title="Workers that still load",
            about="Processes of the framework, scraped with the chosen workers, that show no worker yet."
            " Other kinds of workers among the same targets are counted, too.",
            normal="0, and more while models load.",
            closer="it stays up for longer than a model takes.",
            queries=(
                Query(
                    f"count({of_our_jobs(_WITHOUT_FIGURES)}) or vector(0)",
                    "loading",
                ),
            ),
        ),
        Panel(
            title="Time to load the model",
            about="As the framework measured it, of each worker.",
            normal="the same for one model and machine.",
            closer="a restart takes much longer than the one before: the cache of the model is gone.",
            queries=(
                Query(f"max by ({BY_WORKER}) ({of_others('dynamo_component_model_load_time_seconds')})", WHO),
            ),
            unit=Unit.SECONDS,
        ),
        Panel(
            title="Memory that sleeps",
            about="Kinds of the engine's memory that were given back by sleep.",
            normal="none.",
            closer="a worker sleeps that should serve: wake brings it back.",
            queries=(
                Query(f"sum by (memory, {BY_WORKER}) ({ours('memory_asleep')}) > 0", f"{{{{memory}}}} {WHO}"),
            ),
        ),
        Panel(
            title="What runs",
            about="Version, engine and framework of each worker.",
            normal="one version.",
            closer="two stay after a rollout.",
            queries=(
                Query(
                    f"count by (version, engine, framework_version, dynamo_component, {BY_WORKER})"
                    f" ({ours('build_info')})",
                ),
            ),
            kind=Kind.TABLE,
        ),
    ),
)
