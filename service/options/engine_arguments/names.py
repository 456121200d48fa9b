"""Names that TensorRT-LLM does not know stop the start, with the nearest right one, before anything loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from service.options.engine_arguments.known_fields import LLM_FIELDS, SECTIONS, VERSION, Section, places_of
from service.options.engine_arguments.tree import Node, Tree, find, given_by, inside, place, plain
from service.options.engine_arguments.unusable import RETIRED, UNUSABLE
from service.options.engine_arguments.verdict import Verdict
from service.options.errors import NULL, Problem
from service.options.nearest import advice
from service.options.tables import BY_NAME

if TYPE_CHECKING:
    from service.options.errors import Complaints


@dataclass(frozen=True, slots=True)
class NameCheck:
    """The check of one document against the table of one version.

    where: how the document is called. installed: the version of the distribution tensorrt-llm, "" where
    there is none.
    """

    where: str
    installed: str
    complaints: Complaints

    def check(self, tree: Tree) -> None:
        """Complain about every name of a document that is wrong, and every argument of no use."""
        for path, unusable in UNUSABLE.items():
            node = find(tree, path)
            if node is not None and unusable.is_asked_for_by(plain(node)):
                self._refuse(path, node, unusable.why)
        self._check_fields(tree, Section(LLM_FIELDS), "")

    def _check_fields(self, tree: Tree, section: Section, path: str) -> None:
        for key, node in tree.items():
            here = f"{path}.{key}" if path else key
            if key not in section.fields and here not in UNUSABLE:
                self._report_stranger(here, key, node, section)
            elif here in SECTIONS:
                self._check_section(here, node)

    def _check_section(self, path: str, node: Node) -> None:
        section, fields = SECTIONS[path], inside(node)
        if fields is not None:
            self._check_fields(fields, section, path)
        elif plain(node) is not None or not section.may_be_null:
            why = "must be an object with names and values; leave it out to get TensorRT-LLM's own"
            self._refuse(path, node, why)

    def _report_stranger(self, path: str, key: str, node: Node, section: Section) -> None:
        about = RETIRED.get(path) or _right_name(key, section.fields, has_group=path != key)
        where = self._place(path, node)
        if section.is_open:
            self.complaints.warn(f"{Problem(where, None, about)} (as far as known; TensorRT-LLM decides)")
        else:
            Verdict(self.installed, self.complaints).against(where, None, about)

    def _refuse(self, path: str, node: Node, why: str) -> None:
        value = plain(node)
        self.complaints.refuse(self._place(path, node), NULL if value is None else value, why)

    def _place(self, path: str, node: Node) -> str:
        return place(given_by(node) or self.where, path)


def _right_name(key: str, fields: frozenset[str], *, has_group: bool) -> str:
    """A right name in the wrong place is told its place, any other one the nearest that is known here."""
    places = places_of(key)
    if places:
        return f"unknown key here; its place is {' or '.join(places)}"
    ours = None if has_group else BY_NAME.get(key)
    if ours is not None:
        return f"is no argument of TensorRT-LLM; give {ours.title}"
    others = f"allowed: {', '.join(sorted(fields))}" if has_group else f"{VERSION} has none like it"
    return f"unknown key; {advice(key, fields, others)}"
