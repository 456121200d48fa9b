"""What crosses a border: messages, requests, specs, steps, chunks, errors, and the seams.

Nothing here does I/O or starts a task. Imports: the standard library and msgspec.
"""
