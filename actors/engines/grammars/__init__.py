"""Constraints: which are obeyed, what they cost, and the process in which each is tried first."""
