"""What the installed framework can do, told by whoever may import it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkFacts:
    """Facts about the installed ai-dynamo. This package never imports it.

    worker_config_fields: names of the fields of its WorkerConfig.
    tool_parsers, reasoning_parsers: names of its parsers; called only when an option asks for one.
    """

    version: str
    worker_config_fields: frozenset[str]
    tool_parsers: Callable[[], Sequence[str]]
    reasoning_parsers: Callable[[], Sequence[str]]

    @property
    def is_since_1_6(self) -> bool:
        """Whether it is one of the newer sort, told by a field that came with 1.6."""
        return "structural_tag" in self.worker_config_fields
