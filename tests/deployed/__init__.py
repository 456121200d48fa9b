"""Promises about `deploy/` that take real processes: what its files say, run without containers."""
