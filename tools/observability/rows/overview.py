"""One look: does it serve, how much, how well."""

from __future__ import annotations

from tools.observability.panels import BLUE, GREEN, GREY, ORANGE, RED, YELLOW, Panel, Query, Row, Unit, figure
from tools.observability.selecting import BY_WORKER, POOL, WHO, or_none, ours, quantile, total_rate

# Over all of the time that is shown.
_GOOD = f"sum(increase({ours('requests_total', outcome='completed|stopped_by_frontend')}[$__range]))"
_BAD = f"sum(increase({ours('requests_total', outcome='failed|interrupted')}[$__range]))"
_MOVED = f"sum(increase({ours('requests_moved_total')}[$__range]))"

OVERVIEW = Row(
    "Overview",
    (
        figure(
            "Serving",
            (
                "Workers that are open.",
                "as many as were asked for.",
                "it is 0, or fewer than replicas for longer than a model loads: a worker that loads shows"
                " no figures yet.",
            ),
            or_none(f"sum({ours('worker_state', state='serving')})"),
            Unit.NONE,
            (None, RED),
            (1, GREEN),
        ),
        figure(
            "Requests",
            (
                "Requests that got their outcome, a second.",
                "as your clients are.",
                "it falls to nothing while clients ask: look at frontends.",
            ),
            or_none(total_rate("requests_total")),
            Unit.PER_SECOND,
        ),
        figure(
            "Answered",
            (
                "Share of the requests that were owed an answer and got it, in the time that is shown."
                " Clients that left and requests that were moved to another worker are not counted.",
                "99.9 % and more.",
                "it is below; How requests ended says what became of the others.",
            ),
            f"{_GOOD} / ({_GOOD} + clamp_min({_BAD} - {_MOVED}, 0))",
            Unit.SHARE,
            (None, RED),
            (0.99, ORANGE),
            (0.999, GREEN),
        ),
        figure(
            "First token p95",
            (
                "Arrival to first token, of 19 in 20.",
                "below 1 s.",
                "it is above: Time in each hop says where the time goes.",
            ),
            quantile(0.95, "time_to_first_token_seconds"),
            Unit.SECONDS,
            (None, GREEN),
            (1, ORANGE),
            (2.5, RED),
        ),
        figure(
            "Per token p95",
            (
                "Mean gap between two tokens of an answer, of 19 answers in 20.",
                "one step of the engine, below 0.1 s.",
                "it grows while Engine step does not: readers are slow, or memory is short.",
            ),
            quantile(0.95, "time_per_output_token_seconds"),
            Unit.SECONDS,
            (None, GREEN),
            (0.1, ORANGE),
            (0.25, RED),
        ),
        figure(
            "Tokens out",
            (
                "Tokens of answers, a second.",
                "as requests are.",
                "it falls while requests wait.",
            ),
            or_none(total_rate("tokens_total", direction="output")),
            Unit.RATE,
        ),
        figure(
            "Live",
            (
                "Requests that are owed an outcome now.",
                "below --max-live times workers.",
                "it grows and does not come back.",
            ),
            or_none(f"sum({ours('requests_live')})"),
            Unit.NONE,
        ),
        figure(
            "Leaving",
            (
                "Workers that drain, are drained, sleep, or stop.",
                "0, and one after the other in a rollout.",
                "it stays up: Life of workers says which and for how long.",
            ),
            or_none(f"sum({ours('worker_state', state='draining|drained|stopping|failed')})"),
            Unit.NONE,
            (None, GREEN),
            (1, ORANGE),
        ),
        Panel(
            title="Firing alerts",
            about="Alerts of these rules, by name; each has a runbook.",
            normal="none.",
            closer="there is one: the link Runbooks is above.",
            queries=(
                Query(
                    "count by (alertname, severity)"
                    ' (ALERTS{alertstate="firing", alertname=~"DynamoActor.+"})',
                    "{{alertname}} ({{severity}})",
                ),
            ),
            is_stacked=True,
        ),
        Panel(
            title="How fast the error budget burns",
            about="Lost requests over the 0.1 % that are allowed; 1 spends the budget of a month in a month.",
            normal="0, with short hills.",
            closer="it is above 1 for hours; 14.4 over an hour or 6 over six hours wake somebody up.",
            queries=tuple(
                Query(
                    "max by (model_name, dynamo_component)"
                    f" (component:dynamo_actor_requests_lost:ratio_rate{window}{{{POOL}}}) / 0.001",
                    f"{window} {{{{model_name}}}} {{{{dynamo_component}}}}",
                )
                for window in ("1h", "6h", "3d")
            ),
            thresholds=((None, GREEN), (1, YELLOW), (14.4, RED)),
        ),
        Panel(
            title="Slow beyond the service levels",
            about="Share of first tokens after 1 s, and of answers with more than 0.1 s for a token, over"
            " an hour.",
            normal="below 1 %.",
            closer="it is above 6 % for hours: the budget of a month is gone within days.",
            queries=(
                Query(
                    "max by (model_name, dynamo_component)"
                    f" (component:dynamo_actor_first_token_slow:ratio_rate1h{{{POOL}}})",
                    "first token {{model_name}} {{dynamo_component}}",
                ),
                Query(
                    "max by (model_name, dynamo_component)"
                    f" (component:dynamo_actor_token_pace_slow:ratio_rate1h{{{POOL}}})",
                    "token {{model_name}} {{dynamo_component}}",
                ),
            ),
            unit=Unit.SHARE,
        ),
        Panel(
            title="Requests of each worker",
            about="Requests that got their outcome, a second.",
            normal="much the same for workers of one pool, unless the router follows their caches.",
            closer="one gets none, or all.",
            queries=(Query(total_rate("requests_total", by=BY_WORKER), WHO),),
            unit=Unit.PER_SECOND,
            width=12,
        ),
        Panel(
            title="Workers by state",
            about="How many are in which state. Nobody is seen in starting or loading: figures begin with"
            " serving.",
            normal="all serving.",
            closer="failed is above 0: that worker is on its way out, code 70.",
            queries=(Query(f"sum by (state) ({ours('worker_state')}) > 0", "{{state}}"),),
            is_stacked=True,
            width=12,
            colours=(
                ("serving", GREEN),
                ("draining", YELLOW),
                ("drained", BLUE),
                ("stopping", GREY),
                ("failed", RED),
            ),
        ),
    ),
)
