"""What the engine tells beside its answers: statistics, KV events, metrics."""
