"""``--engine trtllm``: the suites of real processes with TensorRT-LLM's driver and double.

Without it each suite has its own engine: ``synthetic``, and ``torch`` where it needs a model. What is not run
with TensorRT-LLM is deselected, and listed at the end of the run with its reason: nothing is left out in
silence.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.engines import Served

_SYNTHETIC = "synthetic"
_NAMES = (_SYNTHETIC, "trtllm")
_LEFT_OUT = pytest.StashKey[Counter[str]]()
_NO_ENGINE = "no engine is started"
_IN_PROCESS = "inside of the test's process, about what is the same in front of every engine"
_NO_TAGS = "only xgrammar follows structural tags for TensorRT-LLM; the double computes with llguidance"
_OTHERS_OWN = "about what another engine has"
# By the end of a file's path, with the test where it is only one of them.
NOT_FOR_TRTLLM = {
    "e2e/test_decoy.py": _NO_ENGINE,
    "e2e/test_demo.py": "the demo starts its own worker, which finds no TensorRT-LLM here",
    "e2e/test_parsers.py::test_structural_tags_bind_a_required_call": _NO_TAGS,
    "e2e/test_parsers.py::test_structural_tags_leave_free_text_free": _NO_TAGS,
    "e2e/test_synthetic_model.py": _OTHERS_OWN,
    "faults/test_books.py": _NO_ENGINE,
    "faults/test_canary.py::test_probes_are_answered_while_every_reader_stalls": _IN_PROCESS,
    "faults/test_fuzz_http.py::test_the_judge_sees_what_it_looks_for": _NO_ENGINE,
    "faults/test_fuzz_http.py::test_the_judge_lets_pass_what_is_the_frontends": _NO_ENGINE,
    "faults/test_overload.py::test_overload_in_process_is_refused_at_once": _IN_PROCESS,
    "faults/test_process_engine.py": _OTHERS_OWN,
    "faults/test_slow_readers.py::test_readers_that_never_come_back_end_as_stalled": _IN_PROCESS,
    "faults/test_soak_books.py": _NO_ENGINE,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """For tests/e2e and tests/faults."""
    parser.addoption(
        "--engine",
        choices=_NAMES,
        default=_SYNTHETIC,
        help="what the workers of tests/e2e and tests/faults run",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The part that a change has to pass with every engine."""
    config.addinivalue_line("markers", "each_engine: CI runs it with every --engine, and all others with one")


@pytest.fixture(scope="session")
def served(pytestconfig: pytest.Config) -> Served:
    """The engine of ``--engine``."""
    # Not before a test wants it: the plugin is loaded for every run.
    from tests.e2e.engines import Served

    return Served(pytestconfig.option.engine)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what another engine's tests are, and remember which."""
    if config.option.engine == _SYNTHETIC:
        return
    left = {item.nodeid: place for item in items if (place := place_of(item.nodeid)) is not None}
    config.stash[_LEFT_OUT] = Counter(left.values())
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
    items[:] = [item for item in items if item.nodeid not in left]


def place_of(nodeid: str) -> str | None:
    """Under which name a test is left out with TensorRT-LLM; None: it is not."""
    name = nodeid.partition("[")[0]
    path = name.partition("::")[0]
    return next((place for place in NOT_FOR_TRTLLM if name.endswith(place) or path.endswith(place)), None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was left out. Where other processes ran the tests, what may have been is not known here."""
    if config.option.engine == _SYNTHETIC:
        return
    terminalreporter.section(f"not run with --engine {config.option.engine}")
    counts = config.stash.get(_LEFT_OUT, None)
    for place, reason in NOT_FOR_TRTLLM.items():
        if counts is None or place in counts:
            count = "" if counts is None else f" ({counts[place]})"
            terminalreporter.write_line(f"{place}{count}: {reason}")
