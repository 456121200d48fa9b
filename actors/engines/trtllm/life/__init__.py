"""Whether the engine lives, how it sleeps, and how it ends."""
