"""Promises of the plugin that turns skips into failures."""

import pytest

from tests.plugins.require_tools import MAY_BE_ABSENT, MAY_BE_FORBIDDEN

pytest_plugins = ["pytester"]

SKIPS = """
import pytest

def test_passes():
    pass

@pytest.mark.skip(reason="no etcd here")
def test_skipped_by_mark():
    pass

def test_skipped_inside():
    pytest.skip("no model here")

@pytest.mark.xfail(strict=True)
def test_known_to_fail():
    raise ValueError
"""


def run(pytester: pytest.Pytester, source: str) -> pytest.RunResult:
    """Run pytest in a process of its own on one test file, with the plugin alone."""
    pytester.makepyfile(source)
    return pytester.runpytest_subprocess("-p", "tests.plugins.require_tools", "-p", "no:cacheprovider")


def test_without_the_variable_a_skip_is_a_skip(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a developer's machine a missing tool skips its tests, and the counts say so."""
    monkeypatch.delenv("REQUIRE_TOOLS", raising=False)
    result = run(pytester, SKIPS)
    result.assert_outcomes(passed=1, skipped=2, xfailed=1)
    result.stdout.fnmatch_lines(["counts: 1 passed, 0 failed, 0 error, 2 skipped, 1 xfailed, 0 xpassed"])
    assert result.ret == pytest.ExitCode.OK


def test_with_the_variable_a_skip_fails_the_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In CI a skip is a failure with its reason; an expected failure is still expected."""
    monkeypatch.setenv("REQUIRE_TOOLS", "1")
    result = run(pytester, SKIPS)
    outcomes = result.parseoutcomes()
    assert (outcomes["passed"], outcomes["xfailed"], result.ret) == (1, 1, pytest.ExitCode.TESTS_FAILED)
    assert "skipped" not in outcomes
    result.stdout.fnmatch_lines(["*REQUIRE_TOOLS=1*no etcd here*"])
    result.stdout.fnmatch_lines(["*REQUIRE_TOOLS=1*no model here*"])


def test_a_module_that_skips_itself_fails_too(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A skip at module level hides all its tests, so it is refused as well."""
    monkeypatch.setenv("REQUIRE_TOOLS", "1")
    result = run(pytester, "import pytest\npytest.skip('no network here', allow_module_level=True)")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*REQUIRE_TOOLS=1*no network here*"])


@pytest.mark.parametrize("reason", [MAY_BE_ABSENT, f"{MAY_BE_FORBIDDEN}: not as root"])
def test_what_the_repository_cannot_have_may_be_absent(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """What is not part of the repository, or is for root alone, is skipped in CI, too, and counted."""
    monkeypatch.setenv("REQUIRE_TOOLS", "1")
    source = f"import pytest\n\ndef test_one():\n    pytest.skip({reason!r})\n"
    result = run(pytester, source)
    result.assert_outcomes(skipped=1)
    assert result.ret == pytest.ExitCode.OK
