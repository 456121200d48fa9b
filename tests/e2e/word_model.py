"""A model folder without a model: a tokenizer of made-up words, for tests of everything around the engine.

Every id decodes to a word of its own, so a client can tell from the text which tokens arrived.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

VOCAB_SIZE = 32_000
EOS_ID = 2
_SPECIAL = {"<unk>": 0, "<s>": 1, "</s>": EOS_ID}
_TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


def word_of(token_id: int) -> str:
    """The word of an id: a letter, so that no word is part of another."""
    return f"w{token_id}"


def write_word_model(folder: Path) -> Path:
    """Fill a folder with what the framework's model card needs."""
    folder.mkdir(parents=True, exist_ok=True)
    vocab = {**_SPECIAL, **{word_of(i): i for i in range(len(_SPECIAL), VOCAB_SIZE)}}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.Sequence([decoders.Replace("w", " w")])
    tokenizer.add_special_tokens(list(_SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "chat_template": _TEMPLATE,
        },
    )
    _write_json(
        folder / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": VOCAB_SIZE,
            "max_position_embeddings": 2048,
            "bos_token_id": 1,
            "eos_token_id": EOS_ID,
        },
    )
    _write_json(folder / "generation_config.json", {"bos_token_id": 1, "eos_token_id": EOS_ID})
    return folder


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")
