"""deploy/README.md, held against the folder and the code."""

from __future__ import annotations

import re
import tomllib

import promql_parser
import pytest

from service.options.budgets import OperatorTimes, plan_budgets
from tests.deploy import kustomize, references
from tests.deploy.kustomize import Object
from tests.deploy.pods import DEPLOY, PLAIN, REPOSITORY, VARIANTS, Pod, pods_in, shipped
from tests.tooling.test_page_links import broken

PAGE = DEPLOY / "README.md"
TEXT = PAGE.read_text(encoding="utf-8")
# A path of the repository in a command or a sentence.
PATH = re.compile(r"(?<![\w./-])deploy/[\w./-]*[\w]")
ROW = re.compile(r"^\| (\d+)[^|]*\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| (\d+) \|$", re.MULTILINE)
# Beyond the last exit: what the kubelet, or whoever else counts, may be late.
RESERVE_S = 10
PODS = [
    pytest.param(p, id=f"{path} {p.owner}") for path, objects in shipped().items() for p in pods_in(objects)
]


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


def deployments() -> list[Object]:
    """Of all plain variants, with the frontends of each."""
    return [one for objects in shipped().values() for one in objects if one["kind"] == "Deployment"]


def test_each_deployment_is_updated_as_the_page_says() -> None:
    """The page's two numbers are those of every one, and so are the ten seconds that a new pod is ready."""
    assert "(`maxSurge: 1`, `maxUnavailable: 0`)" in TEXT
    assert "is ready for ten" in TEXT
    assert "status` gives up after 7500 s without progress" in TEXT
    assert len(deployments()) == 7
    for one in deployments():
        assert one["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
        assert one["spec"]["minReadySeconds"] == 10
        is_frontend = one["metadata"]["name"] == "dynamo-frontend"
        assert one["spec"].get("progressDeadlineSeconds") == (None if is_frontend else 7500)


@pytest.mark.parametrize("pod", PODS)
def test_each_pod_is_as_the_page_says(pod: Pod) -> None:
    """Moved requests, preStop, and what a cache holds: of every pod of that kind, not of one of them."""
    assert "(`--migration-limit 3`)" in TEXT
    assert "into an `emptyDir` of 10 GiB, 2 GiB for CPUs" in TEXT
    assert "Frontends do have one, 10 s of sleep" in TEXT
    if not pod.is_worker:
        assert pod.main["args"] == ["--migration-limit", "3"]
        assert pod.main["lifecycle"] == {"preStop": {"sleep": {"seconds": 10}}}
        return
    assert "lifecycle" not in pod.main
    (cache,) = [one for one in pod.spec["volumes"] if one["name"] == "cache"]
    is_on_gpu = "nvidia.com/gpu" in pod.main["resources"]["limits"]
    assert cache["emptyDir"]["sizeLimit"] == ("10Gi" if is_on_gpu else "2Gi")


def test_commands_work_in_the_order_of_the_page() -> None:
    """The namespace is made before anything is put into it, and everything is put into that one."""
    first_section = TEXT.index("\n## Before the first apply\n")
    made = TEXT.index("kubectl create namespace dynamo")
    needs = re.compile(r"kubectl (?!-n monitoring|create namespace|get crd|drain|describe|label)[^`\n]*")
    for found in needs.finditer(TEXT):
        words = found[0]
        assert "-n dynamo " in f"{words} " or re.search(r"apply -[kf] deploy/", words), words
        assert not words.startswith("kubectl apply -f deploy/kubernetes"), words
        assert found.start() > made or found.start() < first_section, words
    assert {kustomize.read(PLAIN / name)["namespace"] for name in (*VARIANTS, "monitoring")} == {"dynamo"}


WAYS_BACK = [
    "kubectl -n dynamo rollout undo",
    "kubectl apply -n dynamo -f -   # rollback",
    "--no-build --wait",
    "systemctl start dynamo-actor-worker@0",
]


@pytest.mark.parametrize("way", WAYS_BACK)
def test_every_path_has_a_way_back(way: str) -> None:
    """A command for plain variants, graphs, compose and systemd."""
    assert way in section("Upgrade and rollback")


def test_nobody_is_told_to_install_what_nobody_publishes() -> None:
    """The package is in no index: what is installed is the wheel that was built, of this version."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wheel = f"dist/dynamo_actor_worker-{project['version']}-py3-none-any.whl"
    for page in (PAGE, REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")):
        for words in re.findall(r"pip install ([^\n#`]*)", page.read_text(encoding="utf-8")):
            assert "dynamo-actor-worker" not in words, (page.name, words)
            if "dynamo_actor_worker" in words:
                assert wheel in words, (page.name, words)
