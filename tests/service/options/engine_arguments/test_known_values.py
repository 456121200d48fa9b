"""The table of values holds what the types of TensorRT-LLM's arguments say, neither more nor less."""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter, ValidationError

from service.options.engine_arguments.known_fields import (
    BUCKETS,
    LLM_FIELDS,
    OF_ENCODERS,
    SECTIONS,
    VARIABLES,
)
from service.options.engine_arguments.known_values import FIELDS, READ_HERE
from service.options.engine_arguments.unusable import UNUSABLE, WITHOUT_EFFECT
from service.options.engine_arguments.value_kinds import Object, Words
from tests.doubles.trtllm_site import double_on_path
from tests.service.options.engine_arguments.argument_classes import CLASSES

# What the rest has is a mode for each memory, which is looked at by itself.
_CLASSES = {"": "TorchLlmArgs", **{group: name for group, name in CLASSES.items() if group != "sleep_config"}}
_MODES = "sleep_config.restore_modes"
# Checked elsewhere, or of a type that takes anything.
_ELSEWHERE = {*SECTIONS, *UNUSABLE, *WITHOUT_EFFECT, VARIABLES, "model", "tokenizer"}
# Of graphs of encoders, which are a class of their own, and what tells the two classes apart.
_ENCODERS = {f"cuda_graph_config.{name}" for name in OF_ENCODERS}
_BOTH = "cuda_graph_config.mode"
# Null is in its type, and breaks the check that follows.
_NEVER_NULL = "kv_cache_config.free_gpu_memory_fraction"
_SAMPLES: tuple[object, ...] = (
    *(None, True, 0, 1, -1, 2, 1.5, 1.0, "1", "1.5", "-1", "true", "foo", "auto"),
    *([], [1], [1.5], ["a"], {}, {"a": "b"}, {"a": 1}),
)


@functools.cache
def _hints(name: str) -> dict[str, Any]:
    """The types of a class with their bounds."""
    with double_on_path():
        cls = getattr(import_module("tensorrt_llm.llmapi.llm_args"), name, None)
        cls = cls or getattr(import_module("tensorrt_llm.llmapi.graph_configs"), name)
    fields = cls.model_fields.items()
    return {key: _bounded(field.annotation, field.metadata) for key, field in fields}


def _bounded(hint: Any, bounds: list[Any]) -> Any:
    for bound in bounds:
        hint = Annotated[hint, bound]
    return hint


def _typed() -> list[str]:
    typed = {path for path in FIELDS if path.rpartition(".")[0] in _CLASSES}
    return sorted(typed - {_BOTH})


def _takes(hint: Any, value: object) -> bool:
    try:
        TypeAdapter(hint).validate_python(value)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("path", _typed())
def test_every_field_takes_what_its_type_takes(path: str) -> None:
    """Bounds are in the types; so are validators that go before them, but for one that takes null."""
    field = FIELDS[path]
    group, _, name = path.rpartition(".")
    hint = _hints("EncodeCudaGraphConfig" if path in _ENCODERS else _CLASSES[group])[name]
    words = field.kind.words if isinstance(field.kind, Words) else ()
    for value in (*_SAMPLES, *words):
        is_inside = isinstance(field.kind, Object) and isinstance(value, dict)
        if not is_inside and not (value is None and path in (_NEVER_NULL, "multimodal_config")):
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
    assert all(FIELDS[_BOTH].takes(word) for word in ("decode", "encode"))
    assert not any(FIELDS[_BOTH].takes(word) for word in (None, "both"))


@pytest.mark.parametrize(
    ("arguments", "is_taken"),
    [
        ({"multimodal_config": None}, True),
        ({"kv_cache_config": {"free_gpu_memory_fraction": None}}, False),
        ({"cuda_graph_config": {"mode": None}}, False),
        ({"disable_mm_encoder": True}, True),
    ],
)
def test_null_means_what_the_library_makes_of_it(arguments: dict[str, Any], is_taken: bool) -> None:
    """Also where its type alone says another thing."""
    with double_on_path():
        resolve = import_module("tensorrt_llm.llmapi.torch_llm_args").resolve_llm_args
        try:
            resolve(model="model", **arguments)
        except (TypeError, ValueError):
            assert not is_taken
        else:
            assert is_taken
    for name, value in arguments.items():
        inner = value.items() if isinstance(value, dict) else [("", value)]
        assert all(FIELDS[f"{name}.{key}".rstrip(".")].takes(each) == is_taken for key, each in inner)
