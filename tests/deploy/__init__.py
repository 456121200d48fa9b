"""Promises about what is in ``deploy/``: checked against schemas, the code and real processes."""
