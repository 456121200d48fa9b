"""What workers tell of requests that have ended: asked for, joined across workers, shown.

It runs in a shell of whoever is on call, not in a worker, and everything it is told came from outside.
"""
