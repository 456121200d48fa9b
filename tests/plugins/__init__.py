"""pytest plugins of this repository, loaded by name from pyproject.toml."""
