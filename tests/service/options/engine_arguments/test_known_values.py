"""The table of values holds what the types of TensorRT-LLM's arguments say, neither more nor less."""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any, get_type_hints

import pytest
from pydantic import TypeAdapter, ValidationError

from service.options.engine_arguments.known_fields import BUCKETS, LLM_FIELDS, SECTIONS, VARIABLES
from service.options.engine_arguments.known_values import FIELDS, READ_HERE
from service.options.engine_arguments.unusable import UNUSABLE, WITHOUT_EFFECT
from service.options.engine_arguments.value_kinds import Number, Object, Words
from tests.doubles.trtllm_site import double_on_path

_CLASSES = {
    "": "TorchLlmArgs",
    "kv_cache_config": "KvCacheConfig",
    "scheduler_config": "SchedulerConfig",
    "scheduler_config.dynamic_batch_config": "DynamicBatchConfig",
    "cache_transceiver_config": "CacheTransceiverConfig",
    "cuda_graph_config": "CudaGraphConfig",
    "attention_dp_config": "AttentionDpConfig",
    "kv_connector_config": "KvCacheConnectorConfig",
    "lora_config": "LoraConfig",
}
_MODES = "sleep_config.restore_modes"
# Checked elsewhere, or of a type that takes anything.
_ELSEWHERE = {*SECTIONS, *UNUSABLE, *WITHOUT_EFFECT, VARIABLES, "model", "tokenizer"}
# The library finds out what a dictionary of graphs is for before it looks at the type.
_BOTH = "cuda_graph_config.mode"
# Bounds that the double of the library made up.
_GUESSED = {"encoder_max_batch_size", "encoder_max_num_tokens"}
_SAMPLES: tuple[object, ...] = (
    *(None, True, 0, 1, -1, 2, 1.5, 1.0, "1", "1.5", "-1", "true", "foo", "auto"),
    *([], [1], [1.5], ["a"], {}, {"a": "b"}, {"a": 1}),
)


@functools.cache
def _hints(name: str) -> dict[str, Any]:
    with double_on_path():
        cls = getattr(import_module("tensorrt_llm.llmapi.llm_args"), name)
        return get_type_hints(cls, include_extras=True)


def _typed() -> list[str]:
    typed = {path for path in FIELDS if path.rpartition(".")[0] in _CLASSES}
    return sorted(typed - {_BOTH, *_GUESSED})


def _takes(hint: Any, value: object) -> bool:
    try:
        TypeAdapter(hint).validate_python(value)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("path", _typed())
def test_every_field_takes_what_its_type_takes(path: str) -> None:
    """Bounds that the fact sheet gives are in the types, but for those of one share."""
    field = FIELDS[path]
    group, _, name = path.rpartition(".")
    hint = _hints(_CLASSES[group])[name]
    words = field.kind.words if isinstance(field.kind, Words) else ()
    for value in (*_SAMPLES, *words):
        is_inside = isinstance(field.kind, Object) and isinstance(value, dict)
        is_outside = field.kind == Number(0, 1) and value in (-1, 1.5, 2, "1.5", "-1")
        if not is_inside and not is_outside:
            assert field.takes(value) == _takes(hint, value), value


def test_every_field_has_its_type() -> None:
    """Or is looked at elsewhere."""
    paths = {
        *LLM_FIELDS,
        *(f"{group}.{name}" for group in _CLASSES if group for name in SECTIONS[group].fields),
    }
    assert paths - _ELSEWHERE == {path for path in FIELDS if path.rpartition(".")[0] in _CLASSES} - _ELSEWHERE
    assert {f"{_MODES}.{name}" for name in SECTIONS[_MODES].fields} <= FIELDS.keys()
    assert {f"{BUCKETS}.{name}" for name in SECTIONS[BUCKETS].fields} <= FIELDS.keys()


def test_what_the_worker_reads_is_a_field() -> None:
    """And what it takes, TensorRT-LLM takes, too."""
    assert READ_HERE.keys() <= FIELDS.keys()
    for path, kind in READ_HERE.items():
        taken = [value for value in _SAMPLES if value is not None and kind.holds(value)]
        assert isinstance(FIELDS[path].kind, Words) or all(map(FIELDS[path].takes, taken))


def test_graphs_are_for_one_of_two() -> None:
    """Encoders have some, too."""
    assert all(FIELDS[_BOTH].takes(word) for word in (None, "decode", "encode"))
    assert not FIELDS[_BOTH].takes("both")
