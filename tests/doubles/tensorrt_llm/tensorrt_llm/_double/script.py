"""How a test makes the double misbehave: every trap is one switch here, and all of them are off by default.

The environment variable TENSORRT_LLM_DOUBLE holds a `Script` as JSON; it is read when an LLM is built.
Unknown names stop that, so a trap that is spelled wrongly never passes for one that was survived.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

VARIABLE = "TENSORRT_LLM_DOUBLE"


class Said(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One response that a test dictates. finish: a name of `FinishReason`; "" where the sequence goes on."""

    index: int = 0
    ids: tuple[int, ...] = ()
    finish: str = ""


class Trap(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What goes wrong with requests whose prompt begins with ``prompt``. Tokens are per sequence."""

    # Empty: every request. at: only the n-th one of those, counted from 1; 0 is each of them.
    prompt: tuple[int, ...] = ()
    at: int = 0
    # The request fails late with this text, once it has said so many tokens.
    late_error: str | None = None
    late_error_after: int = 0
    # These responses are given instead of the model's. After the last one the request is over.
    says: tuple[Said, ...] | None = None
    # Every id is held back and comes in one response with the finish.
    only_at_finish: bool = False
    # The engine ends a sequence with `timeout` after so many tokens.
    timeout_after: int | None = None
    # So many ids more than the stop word are cut from the list when a stop word ends the sequence.
    shrinks_by: int = 0
    # The final result has no outputs at all.
    has_no_outputs: bool = False
    # Reading raises EngineDeadError once, after so many responses, and then looks like success.
    dead_after: int | None = None
    # Log probabilities without ranks, with the rank 0, or without those of the first token.
    ranks: Literal["missing", "zero"] | None = None
    misses_first_logprob: bool = False
    # The entry of a prompt's token names that token, and not the one after it, which it is about.
    names_prompt_inputs: bool = False
    # No response ever comes; or none after an abort.
    never_answers: bool = False
    ignores_abort: bool = False
    # So many tokens more come after an abort, before it is answered.
    goes_on_after_abort: int = 0
    # The request is accepted, and then this text waits for the next caller of generate_async.
    # is_fatal: as an error of the system, which ends the engine, and not as one of a request.
    leaves_error: str | None = None
    is_fatal: bool = False

    def is_for(self, prompt: Sequence[int]) -> bool:
        """Whether the prompt begins as the trap's does."""
        return tuple(prompt[: len(self.prompt)]) == self.prompt


class Script(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What goes wrong with the engine as a whole. Times in seconds; counts begin with 1."""

    traps: tuple[Trap, ...] = ()
    # Loading takes longer, ends with the process's death, or with an error that the process reports.
    load_s: float = 0.0
    dies_while_loading: bool = False
    load_error: str | None = None
    # The engine's process is killed, or never steps again, when it has made so many steps.
    dies_at_step: int | None = None
    hangs_at_step: int | None = None
    # The engine's process is killed so long after it has loaded.
    dies_after_s: float | None = None
    # The n-th generate_async finds that the engine died after the check that precedes it.
    dead_at_submit: int | None = None
    # From the n-th call on the health check says no, without a reason.
    unhealthy_from_check: int | None = None
    # Polling raises with this text, or takes longer.
    stats_error: str | None = None
    stats_hang_s: float = 0.0
    events_error: str | None = None
    events_hang_s: float = 0.0
    # After so many events of a rank this many event ids are left out, once.
    event_gap_after: int | None = None
    event_gap: int = 1
    # These are what the first polls give, as they stand here.
    dictated_rows: tuple[dict[str, Any], ...] = ()
    dictated_events: tuple[dict[str, Any], ...] = ()
    # Hashes of blocks are texts; every event is repeated for another, smaller window.
    has_hash_texts: bool = False
    also_window: int | None = None
    # Full blocks only, as an engine without partial reuse reports them.
    hides_partial_blocks: bool = False
    # The first block of everything stored moves to another level of memory.
    offloads_blocks: bool = False
    # shutdown() takes longer, or raises at its end.
    shutdown_s: float = 0.0
    shutdown_error: str | None = None
    # `sleep` or `wakeup` fails at this tag when those before it are done; only the first time.
    sleep_fails_at: str | None = None
    wakeup_fails_at: str | None = None
    # A stop word that comes as the last token that is allowed is not noticed: the answer ends by its length.
    # The samplers of the library that could be read do so.
    has_length_first: bool = False
    # How a prefill ends: as the engine would have it (None), or by this word.
    context_finish: Literal["length", "stop", "not_finished"] | None = None
    # Every generation-only request fails late with this text, and its hand-off is gone.
    transfer_error: str | None = None
    transfer_s: float = 0.0
    # Older releases: names that the API does not have, and ids made from one machine id.
    lacks: tuple[Literal["ConversationParams", "EngineDeadError", "get_kv_cache_capacity"], ...] = ()
    has_machine_ids: bool = False
    # Every request that reaches the engine's process adds a line of JSON to this file.
    journal: str | None = None


def read_script(environ: Mapping[str, str] = os.environ) -> Script:
    """The script of the environment. Raises msgspec.ValidationError for anything it does not know."""
    return msgspec.json.decode(environ.get(VARIABLE) or "{}", type=Script)
