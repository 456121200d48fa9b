"""Hostile requests, generated from the request's own schema: ``python -m tests.fuzz`` (``make fuzz``)."""
