"""Guided decoding: constraints compiled by llguidance, and their state in a running sequence."""
