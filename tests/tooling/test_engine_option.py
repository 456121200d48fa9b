"""Promises of the plugin that lets a suite run with another engine."""

from __future__ import annotations

import pytest

from tests.e2e.engines import NAMES
from tests.e2e.stacks import ROOT
from tests.plugins.engine_option import NOT_FOR_TRTLLM, place_of

pytest_plugins = ["pytester"]

SHOWS = """
def test_shows(served):
    print("runs with", served.name)
"""


def run(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    """Two files, one of which has the path of a test of another engine; with the plugin alone."""
    pytester.makepyfile(**{"e2e/test_demo": SHOWS, "e2e/test_serving": SHOWS})
    plugin = ("-p", "tests.plugins.engine_option", "-p", "no:cacheprovider")
    return pytester.runpytest_subprocess(*plugin, "-s", *words)


@pytest.mark.parametrize(
    ("words", "name", "count"), [((), "synthetic", 2), (("--engine", "trtllm"), "trtllm", 1)]
)
def test_the_option_chooses_the_engine(
    pytester: pytest.Pytester, words: tuple[str, ...], name: str, count: int
) -> None:
    """Without it a suite has its own."""
    result = run(pytester, *words)
    result.assert_outcomes(passed=count, deselected=2 - count)
    assert result.stdout.str().count(f"runs with {name}") == count


def test_what_is_left_out_is_told_with_its_reason(pytester: pytest.Pytester) -> None:
    """It is neither a pass nor a skip that nobody reads."""
    result = run(pytester, "--engine", "trtllm")
    result.stdout.fnmatch_lines(["*not run with --engine trtllm*", "*test_demo.py (1): the demo*"])


def test_it_is_told_where_other_processes_run_the_tests(pytester: pytest.Pytester) -> None:
    """Whoever writes the summary has not collected anything."""
    result = run(pytester, "--engine", "trtllm", "-p", "xdist", "-n", "1")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*not run with --engine trtllm*", "e2e/test_demo.py: the demo*"])


def test_unknown_engines_are_refused(pytester: pytest.Pytester) -> None:
    """By the option, with the names there are."""
    result = run(pytester, "--engine", "tensorrt")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert all(name in result.stderr.str() for name in NAMES)


@pytest.mark.parametrize("place", NOT_FOR_TRTLLM)
def test_what_is_left_out_exists(place: str) -> None:
    """A test that was renamed would run again, and one that has gone has no reason to be named."""
    path, _, name = place.partition("::")
    text = (ROOT / "tests" / path).read_text(encoding="utf-8")
    assert f"def {name}(" in text if name else "def test_" in text


@pytest.mark.parametrize(
    ("nodeid", "is_left_out"),
    [
        ("tests/faults/test_books.py::test_books_that_fit_have_no_flaw[answer1]", True),
        ("tests/faults/test_overload.py::test_overload_in_process_is_refused_at_once[2]", True),
        ("tests/faults/test_overload.py::test_overload_over_http_refuses_and_serves", False),
        ("tests/faults/test_soak_books.py::test_x", True),
        ("tests/faults/test_engine_dies.py::test_x", False),
    ],
)
def test_a_test_is_found_by_its_place(nodeid: str, is_left_out: bool) -> None:
    """A whole file, or one of its tests with all its parameters."""
    assert (place_of(nodeid) is not None) == is_left_out
