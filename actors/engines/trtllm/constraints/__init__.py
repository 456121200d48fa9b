"""Guided decoding: a constraint in TensorRT-LLM's words, tried before it gets there."""
