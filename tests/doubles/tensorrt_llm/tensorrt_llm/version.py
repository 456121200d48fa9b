"""The release that this double stands in for."""

__version__ = "1.3.0rc22"
