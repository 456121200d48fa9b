"""What follows from the merged arguments: contradictions are refused, what has no effect is named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from actors.engines.trtllm_facts import KV_TRANSFER_MS
from protocols.spec import Stage
from service.options.engine_arguments.effects import Effects
from service.options.engine_arguments.tree import (
    Leaf,
    Tree,
    branch,
    find,
    given_by,
    merge,
    place_in,
    plain,
    value_at,
)
from service.options.engine_arguments.value_kinds import as_switch
from service.options.engine_arguments.worker_flags import (
    AFFINITY,
    EVENT_BUFFER,
    EVENT_BUFFER_EVENTS,
    TRANSCEIVER,
    TRANSFER_TIME,
)

if TYPE_CHECKING:
    from service.options.engine_arguments.role import Publishing
    from service.options.errors import Complaints
    from service.options.resolve import Resolution

_BLOCK_REUSE = "kv_cache_config.enable_block_reuse"
_HASHES, _MANAGER_V2 = "kv_cache_config.kv_cache_event_hash_algo", "kv_cache_config.use_kv_cache_manager_v2"
_NO_TOKENIZER = "skip_tokenizer_init"
_BACKEND = "guided_decoding_backend"
_RESTORE_MODES = "sleep_config.restore_modes"


@dataclass(frozen=True, slots=True)
class Adjustment:
    """The rules that look at more than one argument, or at the worker's own options."""

    resolution: Resolution
    role: Stage
    publishing: Publishing
    complaints: Complaints

    def apply(self, tree: Tree) -> Tree:
        """The arguments as they are handed over."""
        self._check_model(tree)
        self._check_transceiver(tree)
        self._check_transfers(tree)
        self._check_affinity(tree)
        self._check_sleep(tree)
        effects = Effects(self.publishing, self.complaints)
        effects.warn(tree)
        return self._with_event_buffer(self._with_tokenizer(effects.without_useless(tree)))

    def _check_model(self, tree: Tree) -> None:
        """The frontend gets the tokenizer of ``--model``: another one here would answer nonsense."""
        chosen = self.resolution["model"]
        if value_at(tree, "model") != chosen.value:
            self.complaints.refuse(
                place_in(tree, "model"),
                value_at(tree, "model"),
                f"the model is chosen with {chosen.where}, which is {chosen.value}; leave it out here",
            )

    def _check_transceiver(self, tree: Tree) -> None:
        if self.role is not Stage.WHOLE and value_at(tree, TRANSCEIVER) is None:
            self.complaints.refuse(
                place_in(tree, TRANSCEIVER) or place_in(tree, "cache_transceiver_config"),
                None,
                f"no KV cache is handed over without it, and {self.resolution['disaggregation_mode'].where} "
                f"{self.role.value} needs that; leave it out to get UCX",
            )

    def _check_transfers(self, tree: Tree) -> None:
        """Nobody tells a prefill engine when its caches have been read: it keeps each for the same time."""
        if self.role is not Stage.PREFILL:
            return
        kept_ms = value_at(tree, TRANSFER_TIME) if find(tree, TRANSFER_TIME) else KV_TRANSFER_MS
        if kept_ms is None:
            why = "a prefill worker could never be sure that it has been read; give milliseconds"
            self.complaints.refuse(place_in(tree, TRANSFER_TIME), None, why)
        elif isinstance(kept_ms, int):
            self._check_drain(kept_ms / 1000)

    def _check_drain(self, kept_s: float) -> None:
        drain = self.resolution["drain_timeout"]
        drain_s = self.resolution.get("drain_timeout", float)
        if drain_s >= kept_s:
            return
        which = f"{drain.where}: a drain" if drain.is_given else "the default drain"
        self.complaints.warn(
            f"{which} of {drain_s:g} s ends before the {kept_s:g} s for which decode workers may read what "
            f"was handed over; give --drain-timeout {kept_s + 5:g} and the pod a grace period above the hard "
            f"exit that --check-config then prints, or a shorter {TRANSFER_TIME}"
        )

    def _check_affinity(self, tree: Tree) -> None:
        source = self.resolution["conversation_affinity_dp_rank_source"]
        if source.is_given and value_at(tree, AFFINITY) is not True:
            self.complaints.warn(f"{source.where} has no effect without --conversation-affinity")
        if value_at(tree, AFFINITY) is True and value_at(tree, "enable_attention_dp") is not True:
            self.complaints.warn(
                f"{place_in(tree, AFFINITY)} has no effect: without --enable-attention-dp there is one rank"
            )

    def _check_sleep(self, tree: Tree) -> None:
        """Whoever wrote ``sleep_config`` means to sleep; the call would be refused much later."""
        modes = value_at(tree, _RESTORE_MODES)
        if value_at(tree, "sleep_config") is None or not isinstance(modes, dict | None):
            return
        # Brings the whole driver along, which no other argument needs here.
        from actors.engines.trtllm.life.memory_rules import KV_CACHE, MemoryRules  # noqa: PLC0415 - see above

        why = MemoryRules.of_arguments(cast("dict[str, object]", plain(tree))).refusal((KV_CACHE,))
        if why:
            self.complaints.warn(
                f"{place_in(tree, 'sleep_config')}: the control `sleep` will be refused: {why}"
            )

    def _with_tokenizer(self, tree: Tree) -> Tree:
        """It costs a start some seconds, so that only what needs one gets it."""
        node = find(tree, _NO_TOKENIZER)
        if node is None or value_at(tree, _NO_TOKENIZER) is not True:
            return tree
        needs = self._what_needs_a_tokenizer(tree)
        if needs is None:
            return tree
        if given_by(node):
            self.complaints.warn(f"{_NO_TOKENIZER}: false for {needs} wins over true of {given_by(node)}")
        return merge(tree, branch(_NO_TOKENIZER, Leaf(False, needs)), [])

    def _what_needs_a_tokenizer(self, tree: Tree) -> str | None:
        """Constraints hold in every role, the hook and thinking budgets where answers are made."""
        if value_at(tree, _BACKEND) is not None:
            return place_in(tree, _BACKEND)
        if self.role is Stage.PREFILL:
            return None
        hook = self.resolution["test_logits_processor"]
        if hook.value is True:
            return hook.where
        node = find(tree, _NO_TOKENIZER)
        has_parser = value_at(tree, "reasoning_parser") is not None
        return "reasoning_parser" if has_parser and node is not None and not given_by(node) else None

    def _with_event_buffer(self, tree: Tree) -> Tree:
        """TensorRT-LLM keeps no events without a buffer."""
        if not self._keeps_events(tree):
            return tree
        self._check_blocks(tree)
        if value_at(tree, EVENT_BUFFER) not in (0, None):
            return tree
        where = place_in(tree, EVENT_BUFFER)
        self.complaints.warn(f"{where}: {EVENT_BUFFER_EVENTS} for --publish-kv-events wins over no buffer")
        return merge(tree, branch(EVENT_BUFFER, Leaf(EVENT_BUFFER_EVENTS)), [])

    def _keeps_events(self, tree: Tree) -> bool:
        """Whether somebody will poll them. Routers look for blocks where prompts are computed."""
        if self.publishing.has_kv_events and self.role is Stage.DECODE:
            where = self.resolution["publish_kv_events"].where
            self.complaints.warn(f"{where}: of a decode worker no KV blocks are told, routers need none")
            return False
        if not self.publishing.has_kv_events and value_at(tree, EVENT_BUFFER):
            self.complaints.warn(
                f"{place_in(tree, EVENT_BUFFER)} has no effect: it takes --publish-kv-events to publish any"
            )
        return self.publishing.has_kv_events

    def _check_blocks(self, tree: Tree) -> None:
        """There are no events of reuse where blocks are not reused, and hashes must fit."""
        if value_at(tree, _BLOCK_REUSE) is False:
            self.complaints.warn(
                f"{place_in(tree, _BLOCK_REUSE)}: false leaves no KV events to publish; routers go by load"
            )
        if value_at(tree, _HASHES) == "v2_sha256":
            self._check_hashes(tree)

    def _check_hashes(self, tree: Tree) -> None:
        """The older manager of the KV cache ignores the word; a model may choose between the two."""
        why, is_newer = "routers take hashes of 64 bits; v2_sha256_64 has them", value_at(tree, _MANAGER_V2)
        if as_switch(is_newer) is True:
            self.complaints.refuse(place_in(tree, _HASHES), "v2_sha256", why)
        elif as_switch(is_newer) is None:
            self.complaints.warn(
                f"{place_in(tree, _HASHES)}: with KV cache manager V2, which a model may choose, it leaves "
                f"no KV events to publish: {why}"
            )
