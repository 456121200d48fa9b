"""Two models on one endpoint: the framework refuses the second one, and the worker says what that means."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from service.exit_codes import ExitCode
from tests.e2e.engines import Served
from tests.e2e.servers import Servers

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

# The framework may try for half a minute.
PATIENCE_S = 90.0
LAST_WORDS = "dynamo-actor-worker: "


@pytest.mark.parametrize("discovery", ["etcd", "file"])
def test_a_second_model_ends_its_worker_and_the_first_one_serves_on(
    served: Served, word_model: Path, tmp_path: Path, discovery: str
) -> None:
    """With 69, both names, the endpoint and the way out as its last words."""
    with ExitStack() as held:
        environ: Mapping[str, str] = {}
        if discovery == "etcd":
            environ = held.enter_context(Servers(tmp_path)).environ
        stack = held.enter_context(
            served.stack(tmp_path / "stack", word_model, environ=environ, discovery=discovery)
        )
        first = stack.model()
        late = stack.add_worker([*stack.options, "--served-model-name", "another"])
        stack.workers.append(late)
        assert late.child.wait(PATIENCE_S) == ExitCode.UNAVAILABLE
        (said,) = [line for line in late.log().splitlines() if line.startswith(LAST_WORDS)]
        for words in (
            "served-model-name 'another'",
            f"serves '{first}' already",
            "DYN_NAMESPACE",
            "--endpoint",
        ):
            assert words in said
        assert stack.chat("w5", max_tokens=3)[0] == 200
