"""Values of a document as this worker and its driver read them, and as TensorRT-LLM would have read them.

Templates write "64" and "false" where a file of one's own has 64 and false: TensorRT-LLM reads both, and so
does this worker. Nothing is refused here; what is of no use stays as it is, for `value_check`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from service.options.engine_arguments.known_fields import VARIABLES
from service.options.engine_arguments.known_values import READ_HERE
from service.options.engine_arguments.tree import Leaf, branch, find, given_by, merge, plain

if TYPE_CHECKING:
    from service.options.engine_arguments.tree import Node, Tree


def with_types(tree: Tree) -> Tree:
    """The same document; what the worker reads is of its type, and variables are texts."""
    for path, kind in READ_HERE.items():
        leaf = find(tree, path)
        if not isinstance(leaf, Leaf) or leaf.value is None or kind.holds(leaf.value):
            continue
        tree = merge(tree, branch(path, Leaf(kind.typed(leaf.value), leaf.where)), [])
    if VARIABLES in tree:
        tree = {**tree, VARIABLES: _as_texts(tree[VARIABLES])}
    return tree


def _as_texts(node: Node) -> Node:
    """Python's texts for values and names alike, as TensorRT-LLM makes them: an environment has no others."""
    if not isinstance(node, Leaf):
        return {name: _as_text(value) for name, value in node.items()}
    found = node.value
    if not isinstance(found, Mapping) or not found:
        return node
    variables = cast("Mapping[object, object]", found)
    return {str(name): Leaf(str(value), node.where) for name, value in variables.items()}


def _as_text(node: Node) -> Node:
    return Leaf(str(plain(node)), given_by(node))
