"""Bounds of the histograms, in seconds."""

from __future__ import annotations

# The three sets of TensorRT-LLM's own metrics, so that dashboards made for it fit; every threshold that a
# service level is likely to have (0.5, 1, 2.5 s to the first token; 0.05, 0.1 s between tokens) is a bound.
FIRST_TOKEN_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
PER_TOKEN_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
REQUEST_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0,
    120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
# Its bounds of the queue begin at 0.3 s and hide everything worth seeing.
QUEUE_S = FIRST_TOKEN_S
# What happens inside this process, from a hand-over within one turn of the loop.
INSIDE_S = (
    1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05,
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
# A hop may last as long as its answer streams.
HOP_S = (*INSIDE_S, 30.0, 60.0, 120.0, 300.0)
# A drain's budget is tens of seconds to a few minutes.
DRAIN_S = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 40.0, 60.0, 120.0, 300.0, 600.0)
