"""What a table of one version is worth: where another one is installed, that one decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from service.options.engine_arguments.known_fields import VERSION
from service.options.errors import Problem

if TYPE_CHECKING:
    from service.options.errors import Complaints


@dataclass(frozen=True, slots=True)
class Verdict:
    """installed: the version of the distribution tensorrt-llm, "" where there is none."""

    installed: str
    complaints: Complaints

    def against(self, where: str, value: object, about: str) -> None:
        """Refuse what the table has not; only warn where the installed version is another than its own."""
        if self.installed in ("", VERSION):
            self.complaints.refuse(where, value, about)
        else:
            decides = f"as of {VERSION}; {self.installed} is installed and decides"
            self.complaints.warn(f"{Problem(where, value, about)} ({decides})")
