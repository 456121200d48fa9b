"""What fails in the engine's process, after the request was taken, and reaches the caller with the result."""

from __future__ import annotations


class Late(Exception):
    """One request fails. The text crosses to the caller's process."""


# The texts of a device that is lost: whatever runs there is lost with it.
ILLEGAL_ACCESS = "CUDA error: an illegal memory access was encountered"
ASSERTED = "CUDA error: device-side assert triggered"
