"""Drivers of inference engines, each behind the `protocols.engine.Engine` seam."""
