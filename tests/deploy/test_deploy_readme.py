"""deploy/README.md, held against the folder and the code."""

from __future__ import annotations

import re

import promql_parser
import pytest

from service.options.budgets import OperatorTimes, plan_budgets
from tests.deploy import references
from tests.deploy.pods import DEPLOY, REPOSITORY, pods_in, shipped
from tests.tooling.test_page_links import broken

PAGE = DEPLOY / "README.md"
TEXT = PAGE.read_text(encoding="utf-8")
# A path of the repository in a command or a sentence.
PATH = re.compile(r"(?<![\w./-])deploy/[\w./-]*[\w]")
ROW = re.compile(r"^\| (\d+)[^|]*\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| (\d+) \|$", re.MULTILINE)
# Beyond the last exit: what the kubelet, or whoever else counts, may be late.
RESERVE_S = 10


def section(heading: str) -> str:
    """The text below a heading, up to the next one of its level."""
    _, found, rest = TEXT.partition(f"\n## {heading}\n")
    assert found, heading
    return rest.partition("\n## ")[0]


def files_named() -> list[str]:
    """Those in the first column of the table of files."""
    rows = [line for line in section("Every file").splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])]


def test_every_file_is_explained_once() -> None:
    """Nothing in the folder is without a word on what it is for, and no word is about what is gone."""
    there = [file for file in DEPLOY.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    named = files_named()
    assert sorted(named) == sorted(file.relative_to(DEPLOY).as_posix() for file in there)


def test_every_path_is_there() -> None:
    """Whatever a command or a sentence names."""
    paths = set(PATH.findall(TEXT))
    assert len(paths) > 8
    assert [path for path in sorted(paths) if not (REPOSITORY / path).exists()] == []


def test_every_link_leads_somewhere() -> None:
    """To a file, and to a section that has that heading now."""
    assert broken(PAGE) == []


def test_every_path_to_take_has_a_command() -> None:
    """One command in each row of the first table."""
    rows = [line for line in section("Which path").splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 6
    for row in rows:
        assert re.search(r"`(make|docker compose|kubectl apply|systemctl) [^`]+`", row.split("|")[3]), row


def test_secrets_are_explained() -> None:
    """Each Secret that a manifest names is made by a command on the page."""
    for name in references.SECRETS:
        assert f"kubectl create secret generic {name} " in TEXT


def test_the_table_of_budgets_is_computed() -> None:
    """Each row is what the worker makes of that D, and a reserve."""
    rows = ROW.findall(section("Sizing the budgets"))
    assert len(rows) == 5
    for drain, moved, ended, last, grace in rows:
        budgets = plan_budgets(float(drain), OperatorTimes())
        assert float(moved) == budgets.move_at_s
        assert float(ended) == budgets.drain_until_s
        assert float(last) == budgets.hard_exit_s == 5 + float(drain) + 15
        assert float(grace) == budgets.hard_exit_s + RESERVE_S


def test_the_shipped_row_is_what_is_shipped() -> None:
    """The manifests have the grace period of the row that says so."""
    (row,) = [line for line in TEXT.splitlines() if "(as shipped)" in line]
    grace = int(row.split("|")[5])
    assert {pod.grace_s for objects in shipped().values() for pod in pods_in(objects)} == {grace}


def test_the_query_asks_for_a_metric_of_ours() -> None:
    """It parses, and its metric is on the page of metrics."""
    (query,) = re.findall(r"^histogram_quantile.*$", TEXT, re.MULTILINE)
    promql_parser.parse(query)
    (metric,) = re.findall(r"\bdynamo_\w+", query)
    metrics = (REPOSITORY / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert f"| `{metric.removesuffix('_bucket')}` | histogram |" in metrics


@pytest.mark.parametrize("number", ["maxSurge: 1", "maxUnavailable: 0", "--migration-limit 3"])
def test_what_it_says_of_the_manifests_is_in_them(number: str) -> None:
    """Settings that the page quotes are those of the files."""
    files = "".join(f.read_text(encoding="utf-8") for f in (DEPLOY / "kubernetes").rglob("*.yaml"))
    quoted = number.replace("--migration-limit 3", 'args: [--migration-limit, "3"]')
    assert number in TEXT
    assert quoted in files
