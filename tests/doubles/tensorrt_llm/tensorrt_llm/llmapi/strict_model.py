"""The base of all configuration models: a key that it does not know is an error, at any depth."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class StrictBaseModel(BaseModel):
    """Raises pydantic's ValidationError, which is a ValueError, for unknown keys and wrong values."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


class OpenModel(BaseModel):
    """For parts whose keys were not read: everything is taken as it comes."""

    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True)
