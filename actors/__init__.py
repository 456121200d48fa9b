"""The graph: one file an actor.

Knows neither the framework, nor telemetry back-ends, nor the command line.
"""
