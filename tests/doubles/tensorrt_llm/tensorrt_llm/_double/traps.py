"""Which of the script's traps a request falls into."""

from __future__ import annotations

from collections.abc import Sequence

from tensorrt_llm._double.script import Script, Trap


class Traps:
    """Counts the requests that each trap is for."""

    def __init__(self, script: Script) -> None:
        self._traps = script.traps
        self._counts = [0] * len(script.traps)

    def find(self, prompt: Sequence[int]) -> Trap | None:
        """The first trap that closes on this request."""
        found: Trap | None = None
        for place, trap in enumerate(self._traps):
            if trap.is_for(prompt):
                self._counts[place] += 1
                if found is None and trap.at in (0, self._counts[place]):
                    found = trap
        return found
