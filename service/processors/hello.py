# pyright: reportMissingImports=false, reportUnknownVariableType=false
"""Upstream's test hook: a logits processor that makes every answer the same two words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dynamo.common.backend.engine import ForcedTokenSequenceSpec, LogitsProcessorSpec

from protocols.spec import ProcessorEntry, Stage
from service.models.errors import ModelInvalid
from service.models.speech import end_id_of, token_ids_of
from service.options.errors import ConfigError, Problem
from service.processors.imports import Factory

if TYPE_CHECKING:
    from service.options.settings import Settings

ANSWER = "Hello world!"
# With a colon, so that no processor of the operator can have the same name.
NAME = "test:hello-world"


def is_wanted(settings: Settings) -> bool:
    """Whether this worker's requests get it. A prefill makes no answer: it reads no tokenizer for one."""
    return settings.engine.has_test_processor and settings.runtime.role is not Stage.PREFILL


def resolve_test_spec(folder: Path, vocab_size: int, where: str) -> LogitsProcessorSpec:
    """The answer as token ids of this model. Raises ConfigError about ``where`` when it cannot say it."""
    try:
        token_ids, end_id = token_ids_of(folder, ANSWER), end_id_of(folder)
    except ModelInvalid as exc:
        raise ConfigError([Problem(where, None, f"{exc.problem}; leave it out, or {exc.remedy}")]) from exc
    beyond = [token for token in (*token_ids, end_id) if not 0 <= token < vocab_size]
    if beyond:
        text = f"the tokenizer gives the id {beyond[0]}, but the model's vocabulary ends at {vocab_size - 1}"
        raise ConfigError([Problem(where, None, text)])
    return LogitsProcessorSpec(entries=(ForcedTokenSequenceSpec(token_ids, end_id),), generation_only=True)


def entries_of(spec: LogitsProcessorSpec | None) -> tuple[ProcessorEntry, ...]:
    """The framework's entries as ours: of every request, before those it asks for itself."""
    return tuple(
        ProcessorEntry(
            name=NAME, options={"token_ids": list(entry.token_ids), "eos_token_id": entry.eos_token_id}
        )
        for entry in (spec.entries if spec is not None else ())
        if isinstance(entry, ForcedTokenSequenceSpec)
    )


def factory() -> Factory:
    """What makes the instances: the framework's own. Imports torch and transformers."""
    from dynamo.logits_processing.examples.forced_sequence import (  # noqa: PLC0415 - seconds, for a test hook
        ForcedSequenceLogitsProcessor,
    )

    return ForcedSequenceLogitsProcessor
