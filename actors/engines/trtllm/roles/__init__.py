"""Prefill and decode: hand-offs, the ids of a request in both engines, caches under way."""
