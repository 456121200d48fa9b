"""The one error of foreign code that steers a request."""

from __future__ import annotations


class SteeringFailed(Exception):
    """A request's own processor or grammar made it impossible to go on. The text has no content in it."""
