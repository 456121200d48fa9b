"""Writes the dashboard, and what a cluster needs of it and of rules: ``python -m tools.observability``."""
