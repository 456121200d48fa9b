"""How prompts and media become inputs; the double has no media."""

from __future__ import annotations

from typing import Any


def default_multimodal_input_loader(
    *,
    tokenizer: Any,
    model_dir: str,
    model_type: str,
    modality: str,
    prompts: list[str],
    media: list[str] | list[list[str]] | None = None,
    image_data_format: str = "pt",
    num_frames: int = 8,
    mm_embeddings: list[Any] | None = None,
    device: str = "cpu",
    extract_audio: bool = False,
) -> list[dict[str, Any]]:
    """Return one input for each prompt. Raises NotImplementedError for media and embeddings."""
    if media is not None or mm_embeddings is not None:
        raise NotImplementedError("the double loads no media")
    return [{"prompt": prompt} for prompt in prompts]
