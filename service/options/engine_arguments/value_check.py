"""Values that TensorRT-LLM would refuse stop the start, before anything loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from service.options.engine_arguments.known_fields import VARIABLES
from service.options.engine_arguments.known_values import FIELDS, READ_HERE, Field
from service.options.engine_arguments.tree import Node, Tree, find, given_by, inside, place, plain, value_at
from service.options.engine_arguments.value_kinds import Kind, Words, as_whole
from service.options.errors import NULL
from service.options.nearest import advice
from service.options.values import Secret

if TYPE_CHECKING:
    from service.options.engine_arguments.verdict import Verdict
    from service.options.errors import Complaints

_SIZES, _LARGEST = "cuda_graph_config.batch_sizes", "cuda_graph_config.max_batch_size"


@dataclass(frozen=True, slots=True)
class ValueCheck:
    """The check of the final tree against the table of one version.

    complaints: for what is refused whatever version is installed.
    """

    tree: Tree
    verdict: Verdict
    complaints: Complaints

    def check(self) -> None:
        """Complain about every value that is wrong, once each."""
        for path, field in FIELDS.items():
            node = find(self.tree, path)
            if node is not None:
                self._check_field(path, field, node)
        self._check_variables()
        self._check_graphs()

    def _check_field(self, path: str, field: Field, node: Node) -> None:
        value, here = plain(node), READ_HERE.get(path)
        where = place(given_by(node), path)
        if value is not None and here is not None and not here.holds(value):
            self.complaints.refuse(where, value, f"allowed: {here.allowed}")
        elif not field.takes(value):
            self.verdict.against(where, NULL if value is None else value, _about(field.kind, value))

    def _check_variables(self) -> None:
        """Names with a value each, or nothing at all. Values are never shown: they may be passwords."""
        node = find(self.tree, VARIABLES)
        if node is not None and plain(node) is not None and inside(node) is None:
            why = "allowed: an object of names, with a value for each"
            self.complaints.refuse(place(given_by(node), VARIABLES), Secret.MASK, why)

    def _check_graphs(self) -> None:
        """Sizes of graphs, and their largest: 0 is none given."""
        sizes, largest = value_at(self.tree, _SIZES), as_whole(value_at(self.tree, _LARGEST))
        node = find(self.tree, _LARGEST)
        numbers = [as_whole(size) for size in cast("list[object]", sizes)] if isinstance(sizes, list) else []
        known = [number for number in numbers if number is not None]
        if node is None or not largest or not known or len(known) < len(numbers) or largest == max(known):
            return
        why = f"allowed beside batch_sizes: {max(known)}, the largest of them; leave one of the two out"
        self.verdict.against(place(given_by(node), _LARGEST), largest, why)


def _about(kind: Kind, value: object) -> str:
    guess = advice(str(value), kind.words, "") if isinstance(kind, Words) else ""
    return f"allowed: {kind.allowed}; {guess}" if guess else f"allowed: {kind.allowed}"
