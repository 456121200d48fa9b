"""The console script on a machine that seems to have TensorRT-LLM and GPUs.

``python -m tests.doubles.trtllm_worker <options of the worker>``. Everything but the package ``tensorrt_llm``
and the number of GPUs is the real thing. DOUBLE_GPUS says how many there are, 1 where it does not; what the
package's double does is said by TENSORRT_LLM_DOUBLE. The engine's process imports this module again, under
another name: nothing happens then.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from tests.doubles.trtllm_site import SITE

GPUS = "DOUBLE_GPUS"


def put_on_path() -> None:
    """For this process and for those that it starts."""
    site, rest = str(SITE), os.environ.get("PYTHONPATH")
    if site not in sys.path:
        sys.path.insert(0, site)
    if site not in (rest or "").split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (site, rest)))


def seem_to_have_gpus() -> None:
    """Wherever the service looks for them; fewer are visible when CUDA_VISIBLE_DEVICES says so."""
    from service.options import machine

    def visible(environ: Mapping[str, str]) -> int:
        present = int(environ.get(GPUS) or 1)
        chosen = environ.get("CUDA_VISIBLE_DEVICES")
        if chosen is None:
            return present
        listed = [word for word in chosen.split(",") if word.strip() and word.strip() != "-1"]
        return min(present, len(listed))

    machine._visible_gpus = visible


def seem_to_have_trtllm(argv: Sequence[str]) -> None:
    """For a worker whose options ask for it, and for its children; nothing for any other."""
    if "trtllm" in argv:
        put_on_path()
        seem_to_have_gpus()


if __name__ == "__main__":
    put_on_path()
    seem_to_have_gpus()
    from service.main import entry_point

    entry_point()
