"""``python -m service`` is the console script."""

from service.main import entry_point

entry_point()
