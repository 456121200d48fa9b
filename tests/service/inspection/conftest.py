"""One browser for all tests of the page; a test that needs it is skipped where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from service.inspection.page import render_page, write_page
from service.inspection.view import view_of
from tests.service.inspection.browser import Browser
from tests.service.inspection.fleet import fleet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A second or two to start."""
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that can be on it."""
    file = tmp_path_factory.mktemp("page") / "trace.html"
    write_page(file, render_page(view_of(fleet())))
    return file


@pytest.fixture
def quiet(browser: Browser) -> Iterator[None]:
    """Whatever a test does, the page complains about nothing and asks nobody for anything but itself."""
    yield
    assert browser.console() == []
    assert [url for url in browser.requested() if not url.startswith(("file:", "data:"))] == []
