"""The folder of a spool: made for one worker, and swept by the next one where that worker was killed.

A lock on the folder itself says that its worker lives: the kernel takes it back when the process ends,
however it ends, and whichever container it was in.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "logits-processors-"
# A folder with this before its name has no lock yet: it is left behind once nobody can still be making it.
_UNDER_WAY = ".new-"
_MAKING_S = 60.0
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class SpoolFolder:
    """One that lives until `remove`, or until the first start of a worker after ours was killed."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock: int | None = lock

    @classmethod
    def make(cls, parent: Path) -> SpoolFolder:
        """With mode 0700. Raises OSError where the parent takes none."""
        made = Path(tempfile.mkdtemp(prefix=_UNDER_WAY + PREFIX, dir=parent))
        lock = -1
        try:
            lock = os.open(made, _OPEN)
            # A file system without locks keeps what is left behind: there nobody can tell it is.
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return cls(made.rename(parent / made.name.removeprefix(_UNDER_WAY)), lock)
        except OSError:
            if lock >= 0:
                os.close(lock)
            shutil.rmtree(made, ignore_errors=True)
            raise

    def remove(self) -> None:
        """Take it away. Idempotent; never raises."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def sweep(parent: Path) -> int:
    """Take away what killed workers of this user have left here. How many folders; never raises.

    Links, folders of others, and whatever does not have our name are left alone.
    """
    swept = 0
    with suppress(OSError):
        for path in [*parent.glob(f"{PREFIX}*"), *parent.glob(f"{_UNDER_WAY}{PREFIX}*")]:
            with _left_behind(path) as is_left:
                if is_left:
                    shutil.rmtree(path, ignore_errors=True)
                    swept += not path.exists()
    return swept


@contextmanager
def _left_behind(path: Path) -> Generator[bool]:
    """Whether it is a folder of this user that no living process has locked; locked by us meanwhile."""
    try:
        lock = os.open(path, _OPEN)
    except OSError:
        yield False
        return
    try:
        status = os.fstat(lock)
        is_made = not path.name.startswith(_UNDER_WAY) or time.time() - status.st_mtime > _MAKING_S
        yield is_made and status.st_uid == os.geteuid() and _is_free(lock)
    finally:
        os.close(lock)


def _is_free(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
