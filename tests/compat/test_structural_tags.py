"""Promises about structural tags: what the options make of them is taken when the worker registers.

The framework's own `Worker` hands its configuration to its Rust side, which reads the object only then: the
model has been loaded by that time. Run by ``make compat`` alone: before 1.6 there is no object.
"""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from dynamo.common.backend import worker as framework_worker
from dynamo.common.configuration.groups import runtime_args

from service.assembly import worker_config
from service.framework import framework_facts
from service.models import ResolvedModel
from service.options import EngineFacts, load_settings
from service.options.tag_kind import FIELDS

if TYPE_CHECKING:
    from dynamo.common.backend.worker import WorkerConfig

TORCH_ONLY = EngineFacts(tensorrt_installed=False, torch_installed=True, gpus=0)
MODEL = ResolvedModel(Path("somewhere"), "somewhere", "folder")
ON = {"scope": "always", "schema": "auto"}


class RanInstead(Exception):
    """The framework got as far as its runtime."""


class NoRuntime:
    """Stands where the Rust worker would: it was given a configuration that was taken."""

    def __init__(self, *_: object, **__: object) -> None:
        raise RanInstead


def configured(*words: str) -> WorkerConfig:
    """The framework's configuration after these words."""
    settings = load_settings(["--engine", "torch", *words], {}, framework_facts(), TORCH_ONLY)
    return worker_config(settings, MODEL, "somewhere")


@pytest.fixture
def take(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets the framework read a whole configuration as it does in a start; nothing is started."""
    monkeypatch.setattr("dynamo.common.backend.worker._backend.Worker", NoRuntime)
    monkeypatch.setattr(framework_worker, "configure_dynamo_logging", lambda: None)
    # The framework sets it.
    monkeypatch.setenv("DYN_RESPONSE_PLANE", "tcp")

    def read(config: WorkerConfig) -> None:
        with pytest.raises(RanInstead):
            asyncio.run(framework_worker.Worker(cast("Any", None), config).run())

    return read


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], ON),
        (["--dyn-structural-tag", "true"], ON),
        (["--dyn-structural-tag", "false"], None),
        (["--dyn-structural-tag", "{}"], ON),
        (
            ["--dyn-structural-tag", '{"scope":"auto","schema":"strict"}'],
            {"scope": "auto", "schema": "strict"},
        ),
        (["--dyn-enable-structural-tag"], ON),
        (["--no-dyn-enable-structural-tag"], None),
        (["--dyn-structural-tag-scope", "auto"], {**ON, "scope": "auto"}),
    ],
)
def test_the_framework_takes_tags_on_and_off(words: list[str], told: object, take: Any) -> None:
    """In every spelling."""
    config: Any = configured(*words)
    assert config.structural_tag == told
    take(config)


@pytest.mark.parametrize(("name", "values"), sorted(FIELDS.items()))
def test_the_framework_takes_every_value_of_every_field(
    name: str, values: tuple[object, ...], take: Any
) -> None:
    """The options know its fields and their defaults, all of them."""
    config: Any = configured()
    for value in values:
        take(dataclasses.replace(config, structural_tag={**ON, name: value}))
    theirs: Any = runtime_args
    assert list(FIELDS) == list(theirs.StructuralTagConfig.__struct_fields__)
    assert getattr(theirs.StructuralTagConfig(), name) == values[0]


@pytest.mark.parametrize("tag", [{"scpoe": "always"}, {"scope": "sometimes"}, True, []])
def test_the_framework_refuses_what_the_options_refuse(tag: object, take: Any) -> None:
    """So that what is taken above was looked at."""
    config: Any = configured()
    with pytest.raises((ValueError, TypeError)):
        take(dataclasses.replace(config, structural_tag=tag))
