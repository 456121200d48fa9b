"""What foreign code that steers a request can do to it."""

from __future__ import annotations


class SteeringFailed(Exception):
    """A request's own processor or grammar made it impossible to go on. The text has no content in it."""


class TooCostly(SteeringFailed):
    """It has used up all that following it may cost."""
