"""A random model of two layers, with words of bytes; its weights are wide, so that sampled tokens differ."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.byte_tokenizer import END_ID, VOCAB_SIZE, write_byte_tokenizer

CONTEXT = 128


def write_tiny_llama(folder: Path) -> Path:
    """Fill a folder, and return it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        initializer_range=0.2,
        eos_token_id=END_ID,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    write_byte_tokenizer(folder)
    return folder
