"""Assertions of the kit explain themselves as those of a test module do."""

import pytest

pytest.register_assert_rewrite(
    "tests.conformance.promises_abort",
    "tests.conformance.promises_flow",
    "tests.conformance.promises_life",
    "tests.conformance.promises_output",
    "tests.conformance.promises_pause",
    "tests.conformance.reader",
)
