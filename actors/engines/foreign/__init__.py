"""Code of operators and callers at work: how it is made, watched, and ended when it takes too long."""
