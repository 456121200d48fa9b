"""The constraint that a request asks for, and what it says about how to obey it.

Whether a constraint's text makes sense is for a grammar compiler to say.
"""

from __future__ import annotations

from typing import Any

from actors.lacking import lacking
from protocols.engine import EngineCapabilities
from protocols.errors import InvalidRequest
from protocols.spec import Guided, GuidedKind

_FIELD = "sampling_options.guided_decoding"
# They say which back-end obeys a constraint, and which blanks JSON may have; they constrain nothing alone.
_BACKEND, _BLANKS = "backend", "whitespace_pattern"
# A back-end in the framework's words: any.
_ANY = ("", "auto")


def asked_constraint(group: dict[str, Any] | None, engine: str, can: EngineCapabilities) -> Guided | None:
    """The one of a request; None without any. Raises InvalidRequest."""
    asked = {key: value for key, value in (group or {}).items() if value is not None}
    backend, blanks = asked.pop(_BACKEND, ""), asked.pop(_BLANKS, "")
    if asked and not can.guided:
        raise lacking(_FIELD, asked, engine, can.no_guided)
    _check_manner(backend, blanks, engine, can)
    if not asked:
        return None
    kinds = [kind.value for kind in GuidedKind if kind in can.guided]
    if len(asked) != 1 or not set(asked) <= set(kinds):
        is_lacking = len(asked) == 1 and set(asked) <= {kind.value for kind in GuidedKind}
        why = f"; {can.no_guided}" if is_lacking else ""
        raise InvalidRequest(_FIELD, asked, f"exactly one of {', '.join(kinds)}{why}")
    ((kind, constraint),) = asked.items()
    return Guided(kind=GuidedKind(kind), constraint=constraint)


def _check_manner(backend: object, blanks: object, engine: str, can: EngineCapabilities) -> None:
    """An operator chooses the back-end. The blanks are its own: others would be other answers."""
    if backend not in (*_ANY, can.guided_backend):
        own = f" or {can.guided_backend!r}, which obeys constraints here" if can.guided_backend else ""
        raise InvalidRequest(f"{_FIELD}.{_BACKEND}", backend, f"'auto'{own}")
    if blanks != "":
        raise lacking(f"{_FIELD}.{_BLANKS}", blanks, engine)
