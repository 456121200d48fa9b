"""Models by name: the built-in one, folders, hub ids. ``resolve_model`` is the whole interface."""

from service.models.errors import ModelError, ModelInvalid, ModelUnavailable
from service.models.progress import ProgressDisplay
from service.models.resolution import ResolvedModel, is_prepared, resolve_model

__all__ = [
    "ModelError",
    "ModelInvalid",
    "ModelUnavailable",
    "ProgressDisplay",
    "ResolvedModel",
    "is_prepared",
    "resolve_model",
]
