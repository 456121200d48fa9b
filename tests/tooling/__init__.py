"""About the repository itself: wheel, lock files, room checks, plugins."""
