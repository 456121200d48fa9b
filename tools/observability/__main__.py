"""``python -m tools.observability``: writes the files; ``--check`` only says whether they are current."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tools.observability.document import UID, dashboard
from tools.observability.manifests import dashboard_map, prometheus_rule

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "observability"
RULES = FOLDER / "rules"


def contents() -> dict[Path, str]:
    """What each file has to be."""
    name = f"{UID}.json"
    text = json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"
    return {
        FOLDER / "grafana" / name: text,
        FOLDER / "k8s" / "grafana-dashboard-configmap.yaml": dashboard_map(name, text),
        FOLDER / "k8s" / "prometheus-rule.yaml": prometheus_rule(sorted(RULES.glob("*.yml"))),
    }


def stale() -> list[Path]:
    """Files that are missing or not what they have to be."""
    return [
        path
        for path, text in contents().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]


def main(arguments: list[str]) -> int:
    """Write, or check: 1 when something is not up to date."""
    found = stale()
    if "--check" in arguments:
        print("\n".join(f"{path}: not up to date" for path in found) or "observability: up to date")
        return 1 if found else 0
    for path in found:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(contents()[path], encoding="utf-8")
        print(f"wrote {path.relative_to(FOLDER)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
