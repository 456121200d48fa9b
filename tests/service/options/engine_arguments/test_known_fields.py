"""The table of names holds what was read of TensorRT-LLM, neither more nor less."""

from __future__ import annotations

from importlib import import_module

import pytest

from actors.engines.trtllm.figures.metrics import BUCKETS as BUCKETS_OF_THE_DRIVER
from service.options.engine_arguments.known_fields import (
    BUCKETS,
    LLM_FIELDS,
    OF_ENCODERS,
    SECTIONS,
    VERSION,
)
from service.options.engine_arguments.known_values import FIELDS
from service.options.engine_arguments.value_kinds import Words
from tests.doubles.trtllm_facts import RELEASE, read_facts
from tests.doubles.trtllm_site import double_on_path
from tests.service.options.engine_arguments.argument_classes import CLASSES

MODES = "sleep_config.restore_modes"


def _fields(name: str) -> frozenset[str]:
    return frozenset(field["name"] for field in read_facts()["classes"][name]["fields"])


def test_the_arguments_are_those_of_the_release() -> None:
    """The same that the double of the tests was made for."""
    assert VERSION == RELEASE
    assert _fields("TorchLlmArgs") == LLM_FIELDS


@pytest.mark.parametrize("path", sorted(CLASSES))
def test_the_objects_in_them_are_those_of_the_release(path: str) -> None:
    """Field by field."""
    encoders = OF_ENCODERS if path == "cuda_graph_config" else frozenset[str]()
    assert _fields(CLASSES[path]) | encoders == SECTIONS[path].fields


def test_graphs_of_encoders_have_fields_of_their_own() -> None:
    """The double has the class, of which no facts were read."""
    with double_on_path():
        fields = import_module("tensorrt_llm.llmapi.graph_configs").EncodeCudaGraphConfig.model_fields
    assert fields.keys() == SECTIONS["cuda_graph_config"].fields


def test_the_memories_that_sleep_are_those_of_the_release() -> None:
    """Names of an object, and values of an enum: the double has it; so are the modes."""
    with double_on_path():
        memory = import_module("tensorrt_llm._torch.virtual_memory")
        assert SECTIONS[MODES].fields == {tag.value for tag in memory.ExecutorMemoryType}
        modes = Words(tuple(memory.RestoreMode.__members__))
        assert all(FIELDS[f"{MODES}.{name}"].kind == modes for name in SECTIONS[MODES].fields)


def test_the_buckets_are_those_that_its_metrics_take() -> None:
    """Read in the signature of its collector, which the driver calls with them."""
    taken = read_facts()["classes"]["MetricsCollector"]["methods"]["__init__"]["parameters"]
    names = {each["name"] for each in taken if each["name"].endswith("_buckets")}
    assert SECTIONS[BUCKETS].fields == names == set(BUCKETS_OF_THE_DRIVER)


def test_every_object_is_held_to_a_fact() -> None:
    """None of them is only believed."""
    assert SECTIONS.keys() == {*CLASSES, MODES, BUCKETS}
