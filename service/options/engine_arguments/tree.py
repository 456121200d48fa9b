"""Arguments as a tree whose leaves know who gave them, so that a value that loses can be named."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast

from service.options.command_line import ENGINE_ARGUMENT_PREFIX
from service.options.engine_arguments.known_fields import VARIABLES
from service.options.values import Secret

# Their values may be passwords.
_MASKED = VARIABLES
# Characters of a value in a line of text.
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value that is replaced as a whole. ``where``: the file, flag or variable; "" is a default of ours.

    An empty object is one, too: so it is known who gave it.
    """

    value: object
    where: str = ""


Node: TypeAlias = "Leaf | dict[str, Node]"
Tree: TypeAlias = dict[str, Node]


def grow(where: str, document: Mapping[str, object]) -> Tree:
    """The tree of a document. Objects whose keys are not all texts stay in one piece, like lists."""
    return {key: _node(where, value) for key, value in document.items()}


def branch(path: str, leaf: Leaf) -> Tree:
    """A tree with one leaf: ``a.b`` is the key ``b`` inside of ``a``."""
    first, _, rest = path.partition(".")
    return {first: branch(rest, leaf) if rest else leaf}


def find(tree: Tree, path: str) -> Node | None:
    """What stands there, None where nothing does."""
    node: Node | None = tree
    for key in path.split("."):
        if not isinstance(node, dict):
            return None
        node = node.get(key)
    return node


def value_at(tree: Tree, path: str) -> object:
    """The plain value there; None also where nothing stands."""
    node = find(tree, path)
    return None if node is None else plain(node)


def merge(weak: Tree, strong: Tree, losers: list[str], path: str = "") -> Tree:
    """Both trees, the strong one over the weak one, objects inside of each other.

    A line goes to ``losers`` for each value that somebody gave and somebody else replaces with another. An
    empty object that is filled has lost nothing. Neither tree is changed.
    """
    merged = dict(weak)
    for key, new in strong.items():
        here = f"{path}.{key}" if path else key
        old = weak.get(key)
        below, above = inside(old), inside(new)
        if below is not None and above is not None:
            merged[key] = merge(below, above, losers, here) or new
            continue
        merged[key] = new
        is_filled = below == {} and isinstance(plain(new), dict)
        if old is not None and given_by(old) and not is_filled and plain(old) != plain(new):
            losers.append(
                f"{here}: {show(here, new)} of {given_by(new)} wins over {show(here, old)} of {given_by(old)}"
            )
    return merged


def inside(node: Node | None) -> Tree | None:
    """What an object holds, be it nothing; None for what is no object."""
    if isinstance(node, Leaf):
        return {} if node.value == {} else None
    return node


def without(tree: Tree, path: str) -> Tree:
    """The same without what stands there. An object that held it stays, be it empty."""
    first, _, rest = path.partition(".")
    below = tree.get(first)
    if rest and isinstance(below, dict):
        return {**tree, first: without(below, rest)}
    return tree if rest else {name: node for name, node in tree.items() if name != first}


def plain(node: Node) -> object:
    """The values alone, fresh: whoever changes them changes nothing here."""
    if isinstance(node, dict):
        return {key: plain(child) for key, child in node.items()}
    return copy.deepcopy(node.value)


def leaves(tree: Tree, path: str = "") -> Iterator[tuple[str, Leaf]]:
    """Every leaf with its dotted path."""
    for key, node in tree.items():
        here = f"{path}.{key}" if path else key
        if isinstance(node, Leaf):
            yield here, node
        else:
            yield from leaves(node, here)


def given_by(node: Node) -> str:
    """Who gave it, or the first thing inside of it; "" where all are defaults of ours."""
    if isinstance(node, Leaf):
        return node.where
    return next((name for name in (given_by(child) for child in node.values()) if name), "")


def place(where: str, path: str) -> str:
    """What an operator has to look for: FILE:a.b, or a dotted flag, which holds the path already."""
    is_dotted = where.startswith(ENGINE_ARGUMENT_PREFIX) and f".{path}." in f"{where}."
    return where if is_dotted or not where else f"{where}:{path}"


def place_in(tree: Tree, path: str) -> str:
    """The same for what stands at a path of a tree."""
    node = find(tree, path)
    return place("" if node is None else given_by(node), path)


def show(path: str, node: Node) -> str:
    """The value for a line of text: as JSON, cut, and masked where it may be a secret."""
    text = as_json(masked(path, plain(node)))
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def masked(path: str, value: object) -> object:
    """The value without what may be a secret in it."""
    first, _, rest = path.partition(".")
    if first != _MASKED:
        return value
    if rest or not isinstance(value, Mapping):
        return Secret.MASK
    return {str(key): Secret.MASK for key in cast("Mapping[object, object]", value)}


def as_json(value: object) -> str:
    """As people write it in an engine's file."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _node(where: str, value: object) -> Node:
    if not isinstance(value, Mapping):
        return Leaf(value, where)
    document = cast("Mapping[object, object]", value)
    if document and all(isinstance(key, str) for key in document):
        return grow(where, cast("Mapping[str, object]", document))
    return Leaf(dict(document), where)
