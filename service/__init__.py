"""The daemon: console script, configuration, the LLMEngine facade, telemetry, signals."""
