"""Scripts of this repository: set-up, lock files, room checks. Nothing here is part of the wheel."""
