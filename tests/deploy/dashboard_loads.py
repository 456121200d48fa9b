"""What the workers of `dashboard_workers` have to do: no two figures are alike."""

from __future__ import annotations

# By so much all is more with those that nobody chose.
MORE = 1000
# Metric, own labels, and how it stands with `a` and `b`.
STEADY: tuple[tuple[str, str, float, float], ...] = (
    ("requests_live", "", 11, 13),
    ("requests_in_flight", "", 17, 19),
    ("requests_waiting", "", 2, 5),
    ("mailbox_depth", 'actor="executor"', 1, 2),
    ("mailbox_depth", 'actor="executor_control"', 0, 1),
    ("mailbox_depth", 'actor="intake"', 3, 1),
    ("mailbox_depth", 'actor="monitor"', 1, 1),
    ("mailbox_depth", 'actor="resolver"', 2, 6),
    ("mailbox_depth", 'actor="resolver_parked"', 5, 1),
    ("mailbox_depth", 'actor="streamer"', 10, 11),
    ("mailbox_capacity", 'actor="executor"', 10, 8),
    ("mailbox_capacity", 'actor="executor_control"', 5, 1),
    ("mailbox_capacity", 'actor="intake"', 8, 16),
    # Nothing fits: no share of it is known.
    ("mailbox_capacity", 'actor="monitor"', 0, 0),
    ("mailbox_capacity", 'actor="resolver"', 20, 50),
    ("mailbox_capacity", 'actor="resolver_parked"', 8, 4),
    ("mailbox_capacity", 'actor="streamer"', 1000, 100),
    ("engine_running_sequences", "", 21, 22),
    ("kv_blocks", 'state="used"', 30, 10),
    ("kv_blocks", 'state="cached"', 20, 25),
    ("kv_blocks", 'state="free"', 50, 5),
    ("worker_state", 'state="starting"', 0, 0),
    ("worker_state", 'state="loading"', 0, 0),
    ("worker_state", 'state="serving"', 1, 1),
    ("worker_state", 'state="draining"', 0, 0),
    ("worker_state", 'state="drained"', 0, 0),
    ("worker_state", 'state="stopping"', 0, 0),
    ("worker_state", 'state="failed"', 0, 0),
    ("drain_remaining_requests", "", 6, 7),
    ("memory_asleep", 'memory="kv_cache"', 1, 0),
    ("memory_asleep", 'memory="model_weights"', 0, 1),
    ("loop_lag_last_seconds", 'dynamo_endpoint="generate"', 0.03, 0.02),
    ("loop_lag_last_seconds", 'dynamo_endpoint="clear"', 0.01, 0.04),
    ("telemetry_errors_total", 'listener="log"', 1, 1),
    ("telemetry_errors_total", 'listener="metrics"', 0, 3),
    ("telemetry_errors_total", 'listener="spans"', 2, 3),
    ("telemetry_errors_total", 'listener="stories"', 0, 0),
)
# Metric, own labels, and by how much a second it rises with `a` and `b`.
RISING: tuple[tuple[str, str, int, int], ...] = (
    ("requests_total", 'outcome="completed"', 100, 50),
    ("requests_total", 'outcome="stopped_by_frontend"', 4, 6),
    ("requests_total", 'outcome="cancelled"', 7, 8),
    ("requests_total", 'outcome="deadline"', 1, 2),
    ("requests_total", 'outcome="stalled"', 2, 2),
    ("requests_total", 'outcome="refused"', 3, 2),
    ("requests_total", 'outcome="interrupted"', 9, 16),
    ("requests_total", 'outcome="failed"', 3, 7),
    ("requests_moved_total", "", 1, 4),
    ("failed_total", 'cause="broken_word"', 1, 2),
    ("failed_total", 'cause="dead"', 2, 2),
    ("failed_total", 'cause="engine"', 2, 3),
    ("failed_total", 'cause="prepare"', 3, 3),
    ("failed_total", 'cause="submit"', 3, 4),
    ("rejected_total", 'reason="draining"', 5, 6),
    ("rejected_total", 'reason="max_live"', 6, 6),
    ("rejected_total", 'reason="invalid_request"', 6, 7),
    ("cancellations_total", 'reason="client", phase="decode"', 8, 6),
    ("cancellations_total", 'reason="client", phase="waiting"', 9, 6),
    ("cancellations_total", 'reason="stall", phase="decode"', 1, 0),
    ("cancellations_total", 'reason="drain", phase="prefill"', 0, 0),
    ("tokens_total", 'direction="input"', 300, 500),
    ("tokens_total", 'direction="input_cached"', 120, 40),
    ("tokens_total", 'direction="output"', 64, 136),
    ("chunks_total", "", 40, 60),
    ("bound_reached_total", 'bound="kv_cache"', 17, 1),
    ("bound_reached_total", 'bound="stories"', 1, 0),
    ("bound_reached_total", 'bound="discovery"', 0, 0),
    ("engine_steps_total", "", 70, 80),
    ("engine_preemptions_total", "", 71, 81),
    ("kv_events_total", 'result="published"', 30, 20),
    ("kv_events_total", 'result="malformed"', 1, 0),
    ("kv_events_total", 'result="lost"', 0, 0),
    ("aborts_total", 'result="asked"', 30, 22),
    ("aborts_total", 'result="confirmed"', 30, 23),
    ("aborts_total", 'result="timed_out"', 30, 24),
    ("logits_processor_seconds_total", 'processor="bias"', 2, 4),
    ("logits_processor_seconds_total", 'processor="ban"', 1, 1),
    ("logits_processor_tokens_total", 'processor="bias"', 100, 200),
    ("logits_processor_tokens_total", 'processor="ban"', 100, 300),
    ("spans_lost_total", 'reason="export_failed"', 40, 15),
    ("spans_lost_total", 'reason="queue_full"', 40, 16),
    ("spans_lost_total", 'reason="shutdown"', 40, 17),
)
# Histogram, own labels, four of its bounds, and how many times what stands below it counts a second.
HISTOGRAMS: tuple[tuple[str, str, tuple[str, str, str, str], int], ...] = (
    ("time_to_first_token_seconds", "", ("0.1", "0.25", "0.5", "1.0"), 1),
    ("time_per_output_token_seconds", "", ("0.01", "0.025", "0.05", "0.1"), 2),
    ("queue_seconds", "", ("0.02", "0.04", "0.06", "0.08"), 3),
    ("request_seconds", "", ("1.0", "2.0", "5.0", "10.0"), 4),
    ("hop_seconds", 'hop="intake"', ("0.0001", "0.00025", "0.0005", "0.001"), 5),
    ("hop_seconds", 'hop="resolve"', ("0.001", "0.0025", "0.005", "0.01"), 6),
    ("hop_seconds", 'hop="execute"', ("0.5", "1.0", "2.5", "5.0"), 7),
    ("hop_seconds", 'hop="stream"', ("10.0", "60.0", "120.0", "300.0"), 8),
    ("engine_step_seconds", "", ("0.005", "0.01", "0.025", "0.05"), 9),
    ("abort_seconds", "", ("0.025", "0.05", "0.1", "0.25"), 10),
    ("loop_lag_seconds", "", ("0.001", "0.1", "0.25", "0.5"), 11),
)
DRAINS = ("10.0", "20.0", "40.0", "120.0")
UP_TO_A = (100, 180, 198, 200, 200)
UP_TO_B = (60, 180, 194, 200, 200)
# Of Prometheus, the framework and TensorRT-LLM, of an endpoint or container: `a`, `b`, and who still loads.
OF_OTHERS: tuple[tuple[str, str, float, float, float | None], ...] = (
    ("up", 'container="main"', 1, 1, 1),
    ("up", 'container="sidecar"', 1, 0, 1),
    ("dynamo_component_uptime_seconds", 'dynamo_endpoint="generate"', 500, 600, 40),
    ("dynamo_component_uptime_seconds", 'dynamo_endpoint="clear"', 400, 610, None),
    ("dynamo_component_model_load_time_seconds", 'dynamo_endpoint="generate"', 30, 44, 46),
    ("dynamo_component_model_load_time_seconds", 'dynamo_endpoint="clear"', 29, 45, 46),
    ("dynamo_work_handler_queue_depth", "", 8, 9, 10),
    ("trtllm_num_requests_waiting", "", 3, 4, 5),
    ("trtllm_num_paused_requests", "", 4, 6, 7),
)
# Whose share of what was recorded: of two clusters' namespaces one is worse. `chat` has lost its generation.
POOLS = (
    ('namespace="k1", dynamo_namespace="chat", dynamo_component="decode", model_name="m1"', 1),
    ('namespace="k2", dynamo_namespace="chat", dynamo_component="decode", model_name="m1"', 2),
    ('namespace="k1", dynamo_namespace="talk", dynamo_component="prefill", model_name="m2"', 3),
)
POOLS_NOT_CHOSEN = (
    ('namespace="k1", dynamo_namespace="chat-eu", dynamo_component="decode", model_name="m1"', MORE),
    ('namespace="k1", dynamo_namespace="chat", dynamo_component="encode", model_name="m1"', MORE),
    ('namespace="k1", dynamo_namespace="chat", dynamo_component="decode", model_name="m3"', MORE),
)
RECORDED = (
    ("component:dynamo_actor_requests_lost:ratio_rate1h", 0.002),
    ("component:dynamo_actor_requests_lost:ratio_rate6h", 0.003),
    ("component:dynamo_actor_requests_lost:ratio_rate3d", 0.005),
    ("component:dynamo_actor_first_token_slow:ratio_rate1h", 0.07),
    ("component:dynamo_actor_token_pace_slow:ratio_rate1h", 0.11),
)
ALERTS = (
    ('alertname="DynamoActorRequestsLost", severity="page", alertstate="firing", instance="a:9090"', 1),
    ('alertname="DynamoActorRequestsLost", severity="page", alertstate="firing", instance="b:9090"', 1),
    ('alertname="DynamoActorQueueLong", severity="ticket", alertstate="firing"', 1),
    ('alertname="DynamoActorQueueLong", severity="ticket", alertstate="pending", instance="b:9090"', 1),
    ('alertname="Watchdog", severity="none", alertstate="firing"', 1),
)
