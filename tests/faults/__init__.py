"""Faults on real processes: ``make faults``. What each one promises, and its figures: docs/reliability.md."""
