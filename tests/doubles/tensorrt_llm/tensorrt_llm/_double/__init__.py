"""What is behind the double's API: the engine's process, and the traps that a test can set."""
