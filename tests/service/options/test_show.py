"""What people read: help, resolved configuration, documentation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import service.options
from service.options import config_json, early_answer, help_text, print_config
from service.options.document import main, page
from service.options.tables import OPTIONS
from tests.service.options.world import load

if TYPE_CHECKING:
    from service.options.option import Option

_PAGE = Path(service.options.__file__).parents[2] / "docs" / "configuration.md"


def test_the_committed_page_is_what_the_table_says(tmp_path: Path) -> None:
    """Run ``python -m service.options.document docs/configuration.md`` after a change of the table."""
    assert _PAGE.read_text(encoding="utf-8") == page()
    main([str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == page()


def test_the_page_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a file name it goes to standard output."""
    main([])
    assert capsys.readouterr().out == page()


@pytest.mark.parametrize("option", OPTIONS, ids=[option.name for option in OPTIONS])
def test_help_and_page_hold_every_option(option: Option) -> None:
    """Nothing is undocumented."""
    assert option.title in help_text()
    for name in (option.flag, option.env):
        assert name is None or f"`{name}`" in page()


def test_help_and_version_are_answered_whatever_else_is_wrong() -> None:
    """They are what one asks when something is wrong."""
    assert early_answer(["--bogus", "--help"], "1.0") == help_text()
    assert early_answer(["-h"], "1.0") == help_text()
    assert early_answer(["--bogus", "--version"], "1.0") == "dynamo-actor-worker 1.0\n"
    assert early_answer(["--max-live", "3"], "1.0") is None


def test_help_fits_a_terminal() -> None:
    """At most a hundred columns, flags with many spellings aside."""
    long = [line for line in help_text().splitlines() if len(line) > 100 and not line.startswith("  --")]
    assert long == []


def test_the_resolved_configuration_names_every_source(tmp_path: Path) -> None:
    """Flag, variable, file, default; and what was overridden."""
    path = tmp_path / "worker.toml"
    path.write_text("seed = 7\nthreads = 3\n", encoding="utf-8")
    settings = load(
        "--max-live", "5", "--config", str(path), env={"DYN_ACTOR_DTYPE": "float32", "DYN_ACTOR_THREADS": "2"}
    )
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in print_config(settings).splitlines()}
    assert rows["--max-live"] == ["5", "flag --max-live"]
    assert rows["--dtype"] == ["float32", "env DYN_ACTOR_DTYPE"]
    assert rows["--seed"] == ["7", f"file {path}:seed"]
    assert rows["--threads"] == ["2", f"env DYN_ACTOR_THREADS (over file {path}:threads)"]
    assert rows["--device"] == ["auto", "default"]
    assert len(rows) == len([option for option in OPTIONS if not option.is_action])


def test_the_dump_is_json_with_the_same_content() -> None:
    """For ``--dump-config-to``."""
    dumped = json.loads(config_json(load("--max-live", "5")))
    assert dumped["max_live"] == {"value": "5", "source": "flag --max-live"}


def test_secrets_are_masked_everywhere() -> None:
    """The table, the dump."""
    settings = load(env={"DYN_ACTOR_CONTROL_TOKEN": "swordfish"})
    assert "swordfish" not in print_config(settings) + config_json(settings)
    assert "********" in print_config(settings)


@pytest.mark.parametrize(
    ("words", "action"),
    [([], "serve"), (["--print-config"], "print_config"), (["--check-config"], "check_config")],
)
def test_what_is_to_be_done(words: list[str], action: str) -> None:
    """Serving is the default."""
    assert load(*words).action == action
