"""Half an hour of load, cancels, stalls and engine errors, books that balance: ``python -m tests.soak``."""
