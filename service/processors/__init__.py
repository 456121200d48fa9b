"""Logits processors of the operator: imported and tried before the model loads; and upstream's test hook.

`imports` is for the checks of the options, too, and needs no framework; `hello` does.
"""
