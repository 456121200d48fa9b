"""Whether the installed llguidance is one that this engine can follow constraints with."""

from __future__ import annotations

import re
from importlib import metadata

# Its matcher's interface, and forms of grammars that are used here.
LEAST = (1, 5)


def why_unguided() -> str:
    """For who asks for a constraint; "" where they are obeyed. TensorRT-LLM brings an older release along."""
    try:
        installed = metadata.version("llguidance")
    except metadata.PackageNotFoundError:
        return "llguidance is not installed"
    numbers = tuple(int(part) for part in re.findall(r"\d+", installed)[:2])
    if numbers >= LEAST:
        return ""
    least = ".".join(map(str, LEAST))
    return f"llguidance {installed} is installed, and guided decoding needs {least} or newer"
