"""``dynamo-actor-worker demo``: the real frontend, one real worker, and what a person remembers."""
