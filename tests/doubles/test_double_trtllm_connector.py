"""Promises of the double about connectors of its KV cache: their code is looked for while it loads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.trtllm_llms import open_llm, write_folder
from tests.doubles.trtllm_site import double_on_path

CONNECTOR = {
    "connector_module": "json.decoder",
    "connector_scheduler_class": "JSONDecoder",
    "connector_worker_class": "JSONDecodeError",
}


@pytest.fixture(autouse=True, scope="module")
def _double() -> Iterator[None]:
    with double_on_path():
        yield


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        ({"connector_module": "no_such_package.connector"}, ImportError),
        ({"connector_scheduler_class": "Leader"}, AttributeError),
        ({"connector_worker_class": "Worker"}, AttributeError),
    ],
)
def test_a_connector_that_is_not_there_ends_the_load(
    tmp_path: Path, wrong: dict[str, str], cause: type[Exception]
) -> None:
    """With the words of a worker that ended, which do not say why."""
    with (
        pytest.raises(RuntimeError, match="Executor worker returned error") as caught,
        open_llm(write_folder(tmp_path), kv_connector_config=CONNECTOR | wrong),
    ):
        raise AssertionError("it was built")
    assert isinstance(caught.value.__cause__, cause)


def test_a_connector_that_is_there_is_taken(tmp_path: Path) -> None:
    """The double has no use for it."""
    with open_llm(write_folder(tmp_path), kv_connector_config=CONNECTOR) as llm:
        assert llm._check_health()
