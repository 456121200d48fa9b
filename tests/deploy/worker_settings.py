"""What a worker makes of the arguments and variables that a file of ``deploy/`` gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from service.framework import framework_facts
from service.options import EngineFacts, Settings, load_settings

ON_CPU = EngineFacts(tensorrt_installed=False, torch_installed=True, gpus=0)
ON_GPU = EngineFacts(tensorrt_installed=True, torch_installed=True, gpus=1, tensorrt_version="1.3.0rc22")


def settings_of(argv: Sequence[str], environ: Mapping[str, str], installed: EngineFacts) -> Settings:
    """The configuration that the worker would run with. Raises ConfigError where it would refuse to start."""
    return load_settings(argv, environ, framework_facts(), installed)
