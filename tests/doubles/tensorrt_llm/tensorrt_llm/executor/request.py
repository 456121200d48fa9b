"""What a request may carry beside its prompt and its sampling options: adapters and a priority."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# In [0, 1]; only a waiting queue that is ordered by priority looks at it.
DEFAULT_REQUEST_PRIORITY = 0.5
LORA_SOURCES = frozenset({"hf", "nemo"})


@dataclass(slots=True)
class LoRARequest:
    """An adapter to be applied. lora_path must exist, so its own default is refused."""

    lora_name: str
    lora_int_id: int
    lora_path: str = ""
    lora_ckpt_source: str = "hf"

    def __post_init__(self) -> None:
        """Raises ValueError for a path that is not there or an unknown source."""
        if not _is_there(self.lora_path):
            raise ValueError(f"lora_path ({self.lora_path}) does not exist")
        if self.lora_ckpt_source not in LORA_SOURCES:
            raise ValueError(f"lora_ckpt_source must be one of {sorted(LORA_SOURCES)}")

    @property
    def adapter_id(self) -> int:
        """The number by which the engine knows the adapter."""
        return self.lora_int_id

    @property
    def name(self) -> str:
        """The adapter's name."""
        return self.lora_name

    @property
    def path(self) -> str:
        """Where the adapter's weights are."""
        return self.lora_path

    @property
    def ckpt_source(self) -> str:
        """The format of the adapter's weights."""
        return self.lora_ckpt_source


@dataclass(slots=True)
class PromptAdapterRequest:
    """A prompt adapter to be applied. Its path must exist, so its own default is refused."""

    prompt_adapter_name: str
    prompt_adapter_id: int
    prompt_adapter_local_path: str = ""

    def __post_init__(self) -> None:
        """Raises RuntimeError for a path that is not there."""
        if not _is_there(self.prompt_adapter_local_path):
            raise RuntimeError(f"prompt_adapter_local_path ({self.prompt_adapter_local_path}) does not exist")


def _is_there(path: str | None) -> bool:
    return path is None or (path != "" and Path(path).exists())
