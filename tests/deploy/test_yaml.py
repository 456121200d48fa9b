"""Promises about the YAML of deploy/: one way of writing it, and no key twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from yamllint import linter  # type: ignore[import-untyped]  # published without types
from yamllint.config import YamlLintConfig  # type: ignore[import-untyped]  # the same

from tests.deploy.pods import DEPLOY, REPOSITORY

CONFIG = YamlLintConfig((REPOSITORY / ".yamllint").read_text(encoding="utf-8"))
FILES = sorted(file for ending in ("yaml", "yml") for file in DEPLOY.rglob(f"*.{ending}"))


def problems(text: str, name: str = "deploy/one.yaml") -> list[str]:
    """What the linter says of a file, by its path in the repository; warnings included."""
    return [f"{one.line}: {one.message} ({one.rule})" for one in linter.run(text, CONFIG, name)]


@pytest.mark.parametrize("file", FILES, ids=[str(file.relative_to(DEPLOY)) for file in FILES])
def test_yaml_is_clean(file: Path) -> None:
    """Every YAML file keeps the rules of .yamllint."""
    assert problems(file.read_text(encoding="utf-8"), str(file.relative_to(REPOSITORY))) == []


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a: 1\na: 2\n", "key-duplicates"),
        ("mode: 0644\n", "octal-values"),
        ("a:\n", "empty-values"),
        ("a: yes\n", "truthy"),
        ("a:\n   b: 1\n", "indentation"),
        ("a: 1 \n", "trailing-spaces"),
    ],
)
def test_what_hides_mistakes_is_found(text: str, rule: str) -> None:
    """Keys that are there twice, octal numbers, keys without a value, words that are truth values."""
    assert any(f"({rule})" in one for one in problems(text)), problems(text)
