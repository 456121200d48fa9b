"""Which conversation a request belongs to. Younger than 1.3.0rc20."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class ConversationParams:
    """The id by which requests of one conversation find the same rank."""

    conversation_id: str

    def __post_init__(self) -> None:
        """Keep the id without its outer blanks. Raises ValueError for None or nothing but blanks."""
        given: object = self.conversation_id
        stripped = "" if given is None else str(given).strip()
        if not stripped:
            raise ValueError("conversation_id must not be blank")
        self.conversation_id = stripped
