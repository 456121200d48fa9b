"""The rule files of ``deploy/observability/rules``, as data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[2]
RULES = REPOSITORY / "deploy" / "observability" / "rules"
FILES = sorted(RULES.glob("*.yml"))
UNIT_TESTS = sorted((RULES / "tests").glob("*_test.yml"))
# Where a pager's link leads.
RUNBOOKS = "https://github.com/dynamo-actor-worker/dynamo-actor-worker/blob/main/docs/operations.md#"
_LABEL = re.compile(r"\$labels\.(\w+)")


@dataclass(frozen=True, slots=True)
class Rule:
    """One alert, or one recording rule. name: of the alert, or of what is recorded. for_: as written."""

    file: str
    group: str
    name: str
    expression: str
    is_alert: bool
    for_: str
    labels: dict[str, str]
    annotations: dict[str, str]

    @property
    def told_labels(self) -> set[str]:
        """Labels that its texts show."""
        return set(_LABEL.findall(" ".join(self.annotations.values())))


@cache
def read(path: Path) -> Any:
    """A YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@cache
def rules() -> tuple[Rule, ...]:
    """All of them, in the order of the files."""
    return tuple(
        Rule(
            file=path.name,
            group=group["name"],
            name=raw.get("alert") or raw["record"],
            expression=raw["expr"],
            is_alert="alert" in raw,
            for_=raw.get("for", ""),
            labels=raw.get("labels", {}),
            annotations=raw.get("annotations", {}),
        )
        for path in FILES
        for group in read(path)["groups"]
        for raw in group["rules"]
    )


ALERTS = [rule for rule in rules() if rule.is_alert]
RECORDINGS = [rule for rule in rules() if not rule.is_alert]
RECORDED = frozenset(rule.name for rule in RECORDINGS)


def name_of(rule: Rule) -> str:
    """Of a parametrised test."""
    return rule.name
