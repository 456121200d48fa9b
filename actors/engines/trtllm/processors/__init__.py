"""Logits processors: pickled into the engine's process, and what comes back of them by files."""
