"""Options that are known by name but cannot be honoured: refused with the reason, never ignored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from service.options.option import Group

if TYPE_CHECKING:
    from service.options.engine_choice import EngineName
    from service.options.errors import Complaints
    from service.options.framework import FrameworkFacts
    from service.options.option import Refusal
    from service.options.resolve import Resolution, Resolved

# Headings of options that say nothing to the other engines.
_OWN_GROUPS = {"torch": Group.TORCH, "synthetic": Group.SYNTHETIC}
# Roles that no engine has.
_ROLES = {
    "encode": "not available in this release: it needs an engine that encodes media; serve such models with "
    "the upstream worker",
    "prefill_and_decode": "an old name: use agg for aggregated serving, or pd for a worker that does prefill "
    "and decode",
}


@dataclass(frozen=True, slots=True)
class Availability:
    """What one engine and the installed framework can do of what was given."""

    engine: EngineName
    framework: FrameworkFacts
    complaints: Complaints

    def check(self, resolution: Resolution) -> None:
        """Refuse what they cannot, and name what says nothing to this engine."""
        for resolved in resolution.items():
            if resolved.is_given and resolved.value != resolved.option.default:
                self._check_engine(resolved)
                self._check_framework(resolved)
        self._warn_about_other_engines(resolution)
        if self.engine == "trtllm":
            return
        for given in resolution.engine_arguments():
            self.complaints.refuse(
                given.source.name,
                None,
                f"holds arguments of TensorRT-LLM, which the engine {self.engine} has not; leave it out",
            )

    def _check_engine(self, resolved: Resolved) -> None:
        refusal, value = resolved.option.refusal, resolved.value
        if refusal is None or refusal.spares(value, self.engine) or self._is_settled_by_its_rule(resolved):
            return
        if resolved.source.kind == "env" and refusal.from_environment == "warn":
            self.complaints.warn(f"{resolved.where} has no effect on this worker; {refusal.instead}")
        else:
            self._refuse(resolved, refusal)

    def _is_settled_by_its_rule(self, resolved: Resolved) -> bool:
        """Options some of whose values have an answer of their own."""
        if resolved.option.name == "connector":
            return self._settle_connector(resolved)
        role = _ROLES.get(str(resolved.value)) if resolved.option.name == "disaggregation_mode" else None
        if role is not None:
            self.complaints.refuse(resolved.where, resolved.value, role)
        return role is not None

    def _settle_connector(self, resolved: Resolved) -> bool:
        """Upstream's rule: one connector at most, and unknown ones count as none, with a warning."""
        text = resolved.option.show(resolved.value)
        if "," in text:
            self.complaints.refuse(resolved.where, text, "allowed: one connector at most, none or kvbm")
        elif text == "kvbm":
            return False
        elif text not in {"none", "null"}:
            self.complaints.warn(f"{resolved.where}: {text!r} is no connector of this worker; none is used")
        return True

    def _refuse(self, resolved: Resolved, refusal: Refusal) -> None:
        reason = refusal.reason_with(self.engine)
        self.complaints.refuse(resolved.where, resolved.option.show(resolved.value), reason)

    def _check_framework(self, resolved: Resolved) -> None:
        field = resolved.option.framework_field
        if field is not None and field not in self.framework.worker_config_fields:
            self.complaints.refuse(
                resolved.where,
                resolved.option.show(resolved.value),
                f"needs a framework whose WorkerConfig has {field!r}; ai-dynamo {self.framework.version} has "
                "not: leave it out or install a newer one (1.6 has it)",
            )

    def _warn_about_other_engines(self, resolution: Resolution) -> None:
        others = [group for engine, group in _OWN_GROUPS.items() if engine != self.engine]
        unused = [item.where for item in resolution.items() if item.is_given and item.option.group in others]
        if unused:
            self.complaints.warn(
                f"{', '.join(unused)}: without effect, the engine {self.engine} has no such option"
            )
