"""One browser for all tests of the page; a test that needs it is skipped where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.service.inspection.browser import Browser

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A second or two to start."""
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()
