"""What the operator wrote in TensorRT-LLM's own words, as trees: a file, a JSON object, dotted flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from service.options.config_file import load_yaml_mapping
from service.options.engine_arguments.dotted import grow_dotted
from service.options.engine_arguments.plain_data import measure
from service.options.engine_arguments.tree import Tree, grow, merge, without

if TYPE_CHECKING:
    from service.options.errors import Complaints
    from service.options.resolve import Resolution

# What trtllm-serve calls the argument `revision`.
_REVISION = "hf_revision"


@dataclass(frozen=True, slots=True)
class Documents:
    """Weakest first: the file of ``--extra-engine-args``, then what stands above the worker's own flags."""

    extra: Tree
    override: Tree
    names: tuple[str, str]

    def by_name(self) -> tuple[tuple[str, Tree], ...]:
        """Each with what it is called."""
        return (self.names[0], self.extra), (self.names[1], self.override)


def read_documents(resolution: Resolution, complaints: Complaints, losers: list[str]) -> Documents:
    """Read them all. Mistakes go to ``complaints``, and what cannot be read counts as empty."""
    dotted = grow_dotted(resolution.dotted, complaints)
    filed = _filed(resolution, complaints)
    override = resolution["override_engine_args"]
    direct = merge(filed, dotted, losers)
    if isinstance(override.value, Mapping) and (resolution.dotted or resolution.filed):
        others = [given.source.name for given in resolution.engine_arguments()]
        complaints.refuse(
            override.where, None, f"cannot be combined with {', '.join(others)}: give all of it in one way"
        )
    elif isinstance(override.value, Mapping):
        direct = _checked(override.where, override.value, complaints)
    names = str(resolution["extra_engine_args"].value), override.where
    return Documents(_with_revision(_extra(resolution, complaints), losers), direct, names)


def _extra(resolution: Resolution, complaints: Complaints) -> Tree:
    name = resolution.find("extra_engine_args", str)
    if name is None:
        return {}
    try:
        return _checked(name, load_yaml_mapping(Path(name).expanduser()), complaints)
    except ValueError as error:
        complaints.refuse(resolution["extra_engine_args"].where, name, str(error))
        return {}


def _with_revision(tree: Tree, losers: list[str]) -> Tree:
    """In that file alone TensorRT-LLM takes another name for the model's revision; the right one wins."""
    theirs = tree.get(_REVISION)
    if theirs is None:
        return tree
    return merge({"revision": theirs}, without(tree, _REVISION), losers)


def _filed(resolution: Resolution, complaints: Complaints) -> Tree:
    given = resolution.filed
    if given is None:
        return {}
    raw: object = given.raw
    document = cast("Mapping[object, object]", raw) if isinstance(raw, Mapping) else None
    if document is None or not all(isinstance(key, str) for key in document):
        complaints.refuse(given.source.name, None, "must hold arguments of TensorRT-LLM with their values")
        return {}
    return _checked(given.source.name, cast("Mapping[str, object]", document), complaints)


def _checked(where: str, document: Mapping[str, object], complaints: Complaints) -> Tree:
    try:
        measure(document)
    except ValueError as error:
        complaints.refuse(where, None, str(error))
        return {}
    return grow(where, document)
