"""Logits processors of the operator: imported and tried before the model loads; and upstream's test hook.

Only `hello` needs the framework.
"""
