"""Promises of the progress display."""

import io

import pytest
from rich.console import Console

from service.models.progress import Bar, Lines


def test_a_pipe_gets_plain_lines() -> None:
    """Not on a terminal: a line when a stage begins and one when it has ended, nothing that moves."""
    stream = io.StringIO()
    with Lines(stream).stage("fetching x (92 MB)") as advance:
        advance(0.5)
        assert stream.getvalue() == "fetching x (92 MB) ...\n"
    first, last = stream.getvalue().splitlines()
    assert first == "fetching x (92 MB) ..."
    assert last.startswith("fetching x (92 MB): done in ")


def test_a_stage_that_fails_is_not_called_done() -> None:
    """The closing line is for stages that came to their end."""
    stream = io.StringIO()
    with pytest.raises(OSError, match="broken"), Lines(stream).stage("converting"):
        raise OSError("broken")
    assert stream.getvalue() == "converting ...\n"


def test_a_terminal_sees_the_stage_and_a_full_bar() -> None:
    """On a terminal the bar is drawn with its title, and names in brackets are text, not markup."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    bar = Bar(console)
    bar.say("model [bold]x[/]: preparing")
    with bar.stage("fetching [x]") as advance:
        advance(0.5)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "model [bold]x[/]: preparing" in shown
    assert "fetching [x]" in shown
