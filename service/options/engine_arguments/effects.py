"""Arguments that do nothing, or take away what was asked for elsewhere: each is named, with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from service.options.engine_arguments.tree import Tree, find, place_in, value_at, without
from service.options.engine_arguments.unusable import UNTRIED, WITHOUT_EFFECT
from service.options.engine_arguments.value_kinds import as_switch

if TYPE_CHECKING:
    from service.options.engine_arguments.role import Publishing
    from service.options.errors import Complaints

_STEPS, _STEPS_OF_REQUESTS = "enable_iter_perf_stats", "enable_iter_req_stats"
_REQUESTS = "return_perf_metrics"


@dataclass(frozen=True, slots=True)
class Effects:
    """What the arguments do, beside what this worker publishes."""

    publishing: Publishing
    complaints: Complaints

    def warn(self, tree: Tree) -> None:
        """Name what is passed on although it does nothing, or was never tried."""
        is_read = self.publishing.has_metrics or self.publishing.has_kv_events
        if is_read and value_at(tree, _STEPS) is False:
            self._warn(tree, _STEPS, "false leaves the figures of TensorRT-LLM's iterations empty")
        if self.publishing.has_metrics and value_at(tree, _REQUESTS) is False:
            self._warn(tree, _REQUESTS, "false leaves TensorRT-LLM's own metrics of requests empty")
        if as_switch(value_at(tree, _STEPS_OF_REQUESTS)) and not value_at(tree, _STEPS):
            self.complaints.warn(f"{place_in(tree, _STEPS_OF_REQUESTS)} has no effect without {_STEPS}")
        for path, why in UNTRIED.items():
            value = value_at(tree, path)
            if value and as_switch(value) is not False:
                self._warn(tree, path, why)

    def without_useless(self, tree: Tree) -> Tree:
        """The arguments without those that do nothing: newer releases may refuse them, or obey."""
        for path, why in WITHOUT_EFFECT.items():
            if find(tree, path) is not None:
                if value_at(tree, path):
                    self.complaints.warn(f"{place_in(tree, path)} has no effect: {why}")
                tree = without(tree, path)
        return self._without_lora_switch(tree)

    def _without_lora_switch(self, tree: Tree) -> Tree:
        if not as_switch(value_at(tree, "enable_lora")):
            return tree
        alone = value_at(tree, "lora_config") is None
        why = ", and is not given; requests for an adapter get 400" if alone else ""
        self.complaints.warn(f"{place_in(tree, 'enable_lora')} has no effect: lora_config decides{why}")
        return without(tree, "enable_lora")

    def _warn(self, tree: Tree, path: str, about: str) -> None:
        self.complaints.warn(f"{place_in(tree, path)}: {about}")
