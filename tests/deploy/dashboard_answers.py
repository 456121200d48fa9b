"""What the dashboard says of `dashboard_fleet`, reckoned by hand from what titles and descriptions promise.

Of a histogram the two workers together have 160, 360, 392 and 400 values a second up to its four bounds. So
half of them are below the point a fifth of the way from the first bound to the second, 95 % below the one
five eighths of the way from the second to the third, and 99 % below the middle of the last two.
"""

from __future__ import annotations

from tests.deploy.dashboard_answer import A, Answer, B, by, each, heat, one, pools, quantiles

Z, NEW, AGAIN = 'instance="z:9090", pod="z-0"', 'instance="new:9090"', 'instance="z:9090"'
_OLD, _NEWER = 'framework_version="1.4.2"', 'framework_version="1.6.1"'
NOUGHT = one(0)
WHO = "{{instance}} {{pod}}"
POOL = "{{model_name}} {{dynamo_component}}"

_OVERVIEW = (
    Answer("Serving", "Serving", one(2), of_nobody=NOUGHT),
    # Every outcome.
    Answer("Requests", "Requests", one(222), of_nobody=NOUGHT),
    # In half an hour every counter of a worker rose by ten more than in the window of rates: good ends, which
    # have four counters, by 160 + 40, lost ones by 35 + 40, and 5 + 20 of those moved. So 200 of 250.
    Answer("Answered", "Answered", one(0.8)),
    Answer("First token p95", "First token p95", one(0.40625)),
    Answer("Per token p95", "Per token p95", one(0.040625)),
    Answer("Tokens out", "Tokens out", one(200), of_nobody=NOUGHT),
    Answer("Live", "Live", one(24), of_nobody=NOUGHT),
    # Draining, drained, stopping and failed.
    Answer("Leaving", "Leaving", one(4), of_nobody=NOUGHT),
    Answer(
        "Firing alerts",
        "{{alertname}} ({{severity}})",
        {
            '{alertname="DynamoActorRequestsLost", severity="page"}': 2,
            '{alertname="DynamoActorQueueLong", severity="ticket"}': 1,
        },
    ),
    # The worse one of two clusters' 0.2 % and 0.4 %, over 0.1 %; and 0.6 %.
    Answer("How fast the error budget burns", f"1h {POOL}", pools(4, 6)),
    Answer("How fast the error budget burns", f"6h {POOL}", pools(6, 9)),
    Answer("How fast the error budget burns", f"3d {POOL}", pools(10, 15)),
    Answer("Slow beyond the service levels", f"first token {POOL}", pools(0.14, 0.21)),
    Answer("Slow beyond the service levels", f"token {POOL}", pools(0.22, 0.33)),
    Answer("Requests of each worker", WHO, each(129, 93)),
    Answer(
        "Workers by state",
        "{{state}}",
        by("state", starting=3, loading=4, serving=2, draining=1, drained=1, stopping=1, failed=1),
    ),
)

_REQUESTS = (
    Answer(
        "How requests ended",
        "{{outcome}}",
        by(
            "outcome",
            completed=150,
            stopped_by_frontend=10,
            cancelled=15,
            deadline=3,
            stalled=4,
            refused=5,
            interrupted=25,
            failed=10,
        ),
    ),
    Answer(
        "Failures by cause", "{{cause}}", by("cause", broken_word=3, dead=4, engine=5, prepare=6, submit=7)
    ),
    Answer("Refused by reason", "{{reason}}", by("reason", draining=11, max_live=12, invalid_request=13)),
    Answer(
        "Ended early, and where",
        "{{reason}} in {{phase}}",
        {
            '{reason="client", phase="decode"}': 14,
            '{reason="client", phase="waiting"}': 15,
            '{reason="stall", phase="decode"}': 1,
        },
    ),
    # In the four minutes that a point stands for: 240 times 25, 5 and 6 a second.
    Answer("Interrupted, and moved", "interrupted", one(6000)),
    Answer("Interrupted, and moved", "moved", one(1200)),
    Answer("Interrupted, and moved", "moved by frontends", one(1440)),
    Answer("Tokens", "{{direction}}", by("direction", input=800, input_cached=160, output=200)),
    heat("Time to first token", 1, "0.1", "0.25", "0.5", "1.0"),
    *quantiles("Time to first token, quantiles", 0.13, 0.40625, 0.75),
    heat("Time per output token", 2, "0.01", "0.025", "0.05", "0.1"),
    *quantiles("Time per output token, quantiles", 0.013, 0.040625, 0.075),
    *quantiles("Wait for the engine", 0.024, 0.0525, 0.07),
    Answer(
        "Time in each hop",
        "{{hop}}",
        by("hop", intake=0.00040625, resolve=0.0040625, execute=1.9375, stream=97.5),
    ),
    *quantiles("Duration", 1.2, 3.875, 7.5),
    # 200 tokens of answers over 100 chunks.
    Answer("Tokens over chunks", "tokens a chunk", one(2)),
    # 160 of 800.
    Answer("Prompts found in the cache", "cached", one(0.2)),
)

_ACTORS = (
    Answer("Waiting for a place", WHO, each(2, 5)),
    Answer("Live requests", WHO, each(11, 13)),
    Answer("Requests in the engine", WHO, each(17, 19)),
    # Of two the fuller one; nothing fits into the monitor's.
    Answer(
        "Mailboxes, how full",
        "{{actor}}",
        by(
            "actor",
            executor=0.25,
            executor_control=1,
            intake=0.375,
            resolver=0.12,
            resolver_parked=0.625,
            streamer=0.11,
        ),
    ),
    Answer(
        "Mailboxes, messages",
        "{{actor}}",
        by(
            "actor",
            executor=3,
            executor_control=1,
            intake=4,
            monitor=2,
            resolver=8,
            resolver_parked=6,
            streamer=21,
        ),
    ),
    Answer("Bounds that were reached", "{{bound}}", by("bound", kv_cache=18, stories=1)),
    heat("Time until admission", 5, "0.0001", "0.00025", "0.0005", "0.001"),
    heat("Time until a request is resolved", 6, "0.001", "0.0025", "0.005", "0.01"),
)

_ENGINE = (
    *quantiles("Engine step", 0.006, 0.019375, 0.0375),
    heat("Engine steps", 9, "0.005", "0.01", "0.025", "0.05"),
    Answer("Steps a second", WHO, each(70, 80)),
    Answer("Sequences in the engine", WHO, each(21, 22)),
    Answer("KV blocks", "{{state}}", by("state", used=40, cached=45, free=55)),
    # 30 of 100, and 10 of 40.
    Answer("KV blocks in use", WHO, each(0.3, 0.25)),
    Answer("Preemptions", WHO, each(71, 81)),
    Answer("TensorRT-LLM's own queue", f"waiting {WHO}", each(3, 4)),
    Answer("TensorRT-LLM's own queue", f"paused {WHO}", each(4, 6)),
    Answer("KV events for routers", "{{result}}", by("result", published=50, malformed=1)),
    Answer("Aborts", "{{result}}", by("result", asked=52, confirmed=53, timed_out=54)),
    *quantiles("Time until an abort is confirmed", 0.03, 0.08125, 0.175),
    # 6 s for 300 tokens, and 2 s for 400.
    Answer("Logits processors, time for a token", "{{processor}}", by("processor", bias=0.02, ban=0.005)),
)

_LIFECYCLE = (
    # The number of the state, in the order of a life.
    Answer(
        "Life of workers",
        WHO,
        {
            **by("instance", **{"starting-0:9090": 1, "starting-1:9090": 1, "starting-2:9090": 1}),
            **by(
                "instance",
                **{"loading-0:9090": 2, "loading-1:9090": 2, "loading-2:9090": 2, "loading-3:9090": 2},
            ),
            **each(3, 3),
            **by("instance", **{"draining-0:9090": 4, "drained-0:9090": 5}),
            **by("instance", **{"stopping-0:9090": 6, "failed-0:9090": 7}),
        },
    ),
    Answer("Requests that a drain waits for", WHO, each(6, 7)),
    # Between 20 s and 40 s; those of more than an hour ago were all short.
    Answer("How long drains took", "p95 of an hour", one(32.5)),
    Answer("Workers that still load", "loading", one(2), of_nobody=NOUGHT),
    # The longer one of two endpoints.
    Answer("Time to load the model", WHO, each(30, 45)),
    Answer(
        "Memory that sleeps",
        "{{memory}} {{instance}} {{pod}}",
        {f'{{memory="kv_cache", {A}}}': 1, f'{{memory="model_weights", {B}}}': 1},
    ),
    Answer(
        "What runs",
        "__auto",
        {
            f'{{version="1.0", engine="torch", {_OLD}, dynamo_component="decode", {A}}}': 1,
            f'{{version="1.1", engine="trtllm", {_NEWER}, dynamo_component="prefill", {B}}}': 1,
        },
    ),
)

_PROCESS = (
    *quantiles("Event loop lag", 0.0208, 0.19375, 0.375),
    Answer("Event loop lag, the last one", WHO, each(0.03, 0.04)),
    # 198 of 200 timers of `a` were in time, and 194 of `b`.
    Answer("Timers that were a quarter of a second late", WHO, each(0.01, 0.03)),
    Answer("Spans lost", "{{reason}}", by("reason", export_failed=55, queue_full=56, shutdown=57)),
    Answer(
        "Reports that could not be written",
        "{{listener}}",
        by("listener", log=2, metrics=3, spans=5, stories=0),
    ),
    Answer("Queue of the framework", WHO, each(8, 9)),
    Answer(
        "Since the last start",
        WHO,
        {**each(500, 610), f"{{{NEW}}}": 40, f"{{{AGAIN}}}": 40},
        beside={f"{{{Z}}}": 1500},
    ),
    # One of two that Prometheus asks of `b` is silent.
    Answer(
        "Scrapes",
        f"{{{{job}}}} {WHO}",
        {
            f'{{job="dynamo-backend", {A}}}': 1,
            f'{{job="dynamo-backend", {B}}}': 0,
            f'{{job="dynamo-backend", {NEW}}}': 1,
            f'{{job="gone", {AGAIN}}}': 1,
            '{job="gone", instance="gone:9090"}': 0,
        },
        beside={f'{{job="dynamo-backend", {Z}}}': 1001},
    ),
)

ANSWERS = (*_OVERVIEW, *_REQUESTS, *_ACTORS, *_ENGINE, *_LIFECYCLE, *_PROCESS)
# Of one that is alone, and of whom more were moved than had been interrupted: nothing is lost.
ALONE = (
    Answer("Answered", "Answered", one(1)),
    Answer("Workers by state", "{{state}}", by("state", serving=1)),
)
# Who drains now.
MARKS = (Answer("Drains", "{{instance}}", {'{instance="draining-0:9090"}': 1}),)
# What can be chosen, beside what is chosen already, and also of those whom nobody chose.
CHOICES = (
    Answer(
        "namespace",
        "dynamo_namespace",
        by("dynamo_namespace", **{"chat-0123abcd": 1, "talk": 1, "chat-eu": 1}),
    ),
    Answer("model", "model_name", by("model_name", m1=1, m2=1, m3=1)),
    Answer("role", "dynamo_component", by("dynamo_component", decode=1, prefill=1, encode=1)),
    Answer("worker", "instance", by("instance", **{"a:9090": 1, "b:9090": 1, "s:9090": 1, "z:9090": 1})),
)
