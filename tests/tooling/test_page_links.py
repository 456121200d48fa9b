"""What the pages point at is there: sections, files, public reports, options, arguments of TensorRT-LLM."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from service.options.engine_arguments.known_fields import LLM_FIELDS, SECTIONS
from service.options.tables import OPTIONS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
REFERENCE = re.compile(r"\]\[(\w+)\]")
DEFINITION = re.compile(r"^\[(\w+)\]: (\S+)$", re.MULTILINE)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+(?:\.[\w.]+)?")
ARGUMENT = re.compile(rf"`(?:--trtllm\.)?((?:{'|'.join(SECTIONS)})\.\w+)")
# Letters of a report's name on the pages, and where it is kept.
TRACKERS = {"d": "ai-dynamo/dynamo", "t": "NVIDIA/TensorRT-LLM", "x": "NVIDIA/TensorRT"}
# Options of others: sub-commands, the frontend, tests and benchmarks, an init, Docker, systemd; and examples.
OF_OTHERS = {
    *("--timeout", "--target", "--for", "--url", "--last", "--slowest", "--failed", "--html", "--json"),
    *("--http-port", "--migration-limit", "--router-mode", "--enforce-disagg", "--init"),
    *("--figures", "--moments", "--minutes", "--full", "--quick", "--only"),
    *("--build", "--now", "--wait", "--stop-timeout", "--no-deps"),
    *("--x", "--no-x"),
}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def anchor_of(heading: str) -> str:
    """As GitHub and its like make it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def anchors_of(page: Path) -> set[str]:
    text = page.read_text(encoding="utf-8")
    return {anchor_of(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


def broken(page: Path) -> list[str]:
    """Links of a page to a file or a section that is not there."""
    found: list[str] = []
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        is_elsewhere = target.startswith("http")
        if not is_elsewhere and (not file.exists() or (anchor and anchor not in anchors_of(file))):
            found.append(target)
    return found


def known_flags() -> set[str]:
    """Their old spellings, too, and the forms that switch off."""
    spellings: set[str] = set()
    for option in OPTIONS:
        spellings.update(filter(None, (option.flag, *option.aliases, *option.deprecated_flags)))
    return spellings | {flag.replace("--", "--no-", 1) for flag in spellings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a file of the repository, and to a section that has that heading now."""
    assert broken(page) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_report_that_is_named_has_its_address(page: Path) -> None:
    """Each once, used, and at the number by which it is called."""
    text = page.read_text(encoding="utf-8")
    addresses = DEFINITION.findall(text)
    assert sorted(name for name, _ in addresses) == sorted(set(REFERENCE.findall(text)))
    for name, address in addresses:
        kinds = rf"https://github\.com/{TRACKERS[name[0]]}/(?:issues|pull)/{name[1:]}"
        assert re.fullmatch(kinds, address), address


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_option_that_is_named_exists(page: Path) -> None:
    """Ours by our own table; a few of others by the list above."""
    named = {flag for flag in FLAG.findall(page.read_text(encoding="utf-8")) if "." not in flag}
    assert named - known_flags() - OF_OTHERS == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_argument_of_tensorrt_llm_that_is_named_exists(page: Path) -> None:
    """In the groups whose fields are known; `restore_modes` goes on by memory."""
    for path in ARGUMENT.findall(page.read_text(encoding="utf-8")):
        group, _, field = path.rpartition(".")
        assert group.partition(".")[0] in LLM_FIELDS
        assert SECTIONS[group].is_open or field in SECTIONS[group].fields | {"kv_events_config"}, path


def test_a_link_to_nowhere_is_found(tmp_path: Path) -> None:
    """These tests can fail."""
    page = tmp_path / "page.md"
    page.write_text("# One\n[a](#one) [b](#two) [c](page.md) [d](other.md)\n", encoding="utf-8")
    assert broken(page) == ["#two", "other.md"]
    assert "--max-lives" not in known_flags()
