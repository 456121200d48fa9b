"""Which engine the workers of a test run; ``--engine`` of pytest chooses it (tests/plugins/engine_option.py).

Both say 1000, 1001, ... at a set pace where the model has no weights: ``synthetic`` in the worker itself,
``trtllm`` in a child of TensorRT-LLM's double. What is different by nature, and what becomes of it in a test:

* the driver of TensorRT-LLM has no pause: a slow reader has reserved all that it may be told, and is held by
  nobody. Its rows are about its room in memory and its end, not about an engine that waits for it;
* the pace is a variable of the double, not an option of the worker;
* the engine always is a process of its own, whether or not a test asks for one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.stacks import PROGRAM, Stack

SYNTHETIC, TRTLLM = "synthetic", "trtllm"
NAMES = (SYNTHETIC, TRTLLM)
# The console script on a machine that seems to have TensorRT-LLM.
_WITH_DOUBLE = (sys.executable, "-m", "tests.doubles.trtllm_worker")
_PACE = "DOUBLE_STEP_MS"


@dataclass(frozen=True, slots=True)
class Served:
    """One of `NAMES`, and how a worker gets it."""

    name: str

    @property
    def program(self) -> tuple[str, ...]:
        """The console script."""
        return _WITH_DOUBLE if self.is_trtllm else PROGRAM

    @property
    def is_trtllm(self) -> bool:
        """Whether it is TensorRT-LLM's driver."""
        return self.name == TRTLLM

    @property
    def can_pause(self) -> bool:
        """Whether one request can be held back while the others go on."""
        return not self.is_trtllm

    def words(self, model: Path, step_ms: float | None = None) -> list[str]:
        """The first options of a worker. step_ms: from one step to the next, as far as options say it."""
        words = ["--engine", self.name, "--model", str(model)]
        if step_ms is not None and not self.is_trtllm:
            words += ["--synthetic-step-ms", f"{step_ms:g}"]
        return words

    def words_with_weights(self, model: Path | str, *options: str) -> list[str]:
        """The same for a model with weights, which obeys constraints: ``torch``, or what has it behind it."""
        if self.is_trtllm:
            words = ["--engine", TRTLLM, "--guided-decoding-backend", "llguidance"]
        else:
            # Of its own accord each would take a quarter of what is free, and several are there at once.
            words = ["--engine", "torch", "--threads", "1", "--memory-gb", "2"]
        return [*words, "--model", str(model), *options]

    def environ(self, step_ms: float | None = None) -> dict[str, str]:
        """What is not said by options."""
        return {_PACE: f"{step_ms:g}"} if step_ms is not None and self.is_trtllm else {}

    def stack_with_weights(self, folder: Path, model: Path | str, *options: str, **arrangement: Any) -> Stack:
        """A frontend and workers with a model that computes."""
        words = self.words_with_weights(model, *options)
        return Stack(folder, words, program=self.program, **arrangement)

    def stack(
        self,
        folder: Path,
        model: Path,
        *options: str,
        step_ms: float | None = None,
        program: Sequence[str] | None = None,
        environ: Mapping[str, str] | None = None,
        **arrangement: Any,
    ) -> Stack:
        """A frontend and workers with this engine. program: instead of the console script; see `Stack`."""
        return Stack(
            folder,
            [*self.words(model, step_ms), *options],
            program=self.program if program is None else program,
            environ={**self.environ(step_ms), **(environ or {})},
            **arrangement,
        )
