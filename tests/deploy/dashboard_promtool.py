"""The dashboard's questions, asked by promtool."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.deploy.dashboard_answer import Samples
from tests.deploy.dashboard_file import filled
from tests.deploy.dashboard_series import ASKED_AT, WINDOWS, Series
from tests.e2e.servers import tool

# Fractions are compared digit by digit: so far a figure is exact.
_EXACT = 1e-8


@dataclass(frozen=True, slots=True)
class Asked:
    """One expression as it stands in the file, and what it should say."""

    expression: str
    samples: Samples


@dataclass(frozen=True, slots=True)
class Scene:
    """Who is there, what is chosen, and what is asked then."""

    name: str
    series: Sequence[Series]
    choice: Mapping[str, str]
    asked: Sequence[Asked]


def differences(folder: Path, scenes: Iterable[Scene]) -> str:
    """What promtool finds in one run: empty where every answer is the right one."""
    path = folder / "dashboard_test.yml"
    # JSON is YAML.
    path.write_text(json.dumps({"tests": [_written(scene) for scene in scenes]}), encoding="utf-8")
    ran = subprocess.run(
        [tool("promtool"), "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr


def _written(scene: Scene) -> dict[str, object]:
    checks = [
        {
            "expr": f"round({filled(asked.expression, scene.choice, WINDOWS)}, {_EXACT:g})",
            "eval_time": ASKED_AT,
            "exp_samples": [{"labels": labels, "value": value} for labels, value in asked.samples.items()],
        }
        for asked in scene.asked
    ]
    return {
        "name": scene.name, "interval": "1m", "input_series": scene.series, "promql_expr_test": checks,
    }  # fmt: skip
