"""How a KV cache gets from a prefill to a decode: a file in a folder that both know.

It says which prompt was computed and who holds it. A decode takes it away; a prefill that ends takes back
what nobody has fetched, and one that was killed leaves files that name a process which is no more.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from tensorrt_llm._double.late import Late

_MARK = b"double-kv:"


class Transfers:
    """One side of it. folder: "" where none was named. timeout_s: how long a prefill holds what it left."""

    def __init__(self, folder: str, timeout_s: float, now_s: Callable[[], float] = time.time) -> None:
        self._folder = Path(folder) if folder else None
        self._timeout_s = timeout_s
        self._now_s = now_s
        self._left: list[Path] = []

    def leave(self, prompt: list[int], first_tokens: list[int]) -> bytes:
        """A prefill is done. Returns the opaque state by which a decode finds it. Raises Late."""
        path = self._need_folder() / f"{uuid.uuid4().hex}.json"
        until_s = self._now_s() + self._timeout_s
        content = {"pid": os.getpid(), "prompt": prompt, "first": first_tokens, "until_s": until_s}
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(content))
        draft.rename(path)
        self._left.append(path)
        return _MARK + path.name.encode()

    def fetch(self, state: bytes | None, prompt: list[int]) -> None:
        """Take a prefill's cache, once. Raises Late when it is not there, or is not this prompt's."""
        if state is None or not state.startswith(_MARK):
            raise Late("the opaque state of the context phase cannot be read")
        path = self._need_folder() / state.removeprefix(_MARK).decode()
        try:
            content = json.loads(path.read_text())
            path.unlink()
        except (OSError, ValueError) as exc:
            raise Late("Disaggregated KV cache transfer failed: nothing is held under this state") from exc
        if not Path(f"/proc/{content['pid']}").exists():
            raise Late("Disaggregated KV cache transfer failed: the context server is gone")
        if self._now_s() > content["until_s"]:
            raise Late("Disaggregated KV cache transfer failed: the time for it is over")
        if content["prompt"] != prompt:
            raise Late("Disaggregated KV cache transfer failed: it holds another prompt")

    @property
    def held(self) -> int:
        """How many wait for a decode."""
        self._left = [path for path in self._left if path.exists()]
        return len(self._left)

    def close(self) -> None:
        """Whatever nobody has fetched is gone with this process."""
        for path in self._left:
            path.unlink(missing_ok=True)

    def check(self) -> None:
        """Raises Late when nothing can be left."""
        self._need_folder()

    def _need_folder(self) -> Path:
        if self._folder is None:
            raise Late("the double has no folder for transfers")
        return self._folder
