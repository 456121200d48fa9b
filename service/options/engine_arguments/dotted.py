"""Dotted flags, ``--trtllm.GROUP.KEY VALUE``, become one tree."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

from protocols.strict_json import read_json
from service.options.engine_arguments.known_fields import VARIABLES
from service.options.engine_arguments.known_values import FIELDS
from service.options.engine_arguments.plain_data import measure
from service.options.engine_arguments.tree import Leaf, Tree, branch, masked, merge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from service.options.errors import Complaints
    from service.options.values import Given

# Longer ones are no numbers that anybody means, and slow to convert.
_LONGEST_NUMBER = 40
_NOTHING = ("none", "null")


def infer(text: str) -> object:
    """What a word of the command line stands for: nothing, a number, yes or no, a list, else the text itself.

    Raises ValueError for numbers that are not finite, and for a list of too much.
    """
    word = text.lower()
    if word in _NOTHING:
        return None
    number = _number(text)
    if number is not None:
        return number
    found = _list(text)
    return {"true": True, "false": False}.get(word, text) if found is None else found


def _read(path: str, text: str) -> object:
    """As `infer` does, but where only a text can stand: NONE is a mode, 3 the value of a variable."""
    field = FIELDS.get(path)
    if field is not None and field.is_text:
        return None if field.may_be_null and text.lower() in _NOTHING else text
    return text if path.startswith(f"{VARIABLES}.") else infer(text)


def grow_dotted(given: Mapping[str, Given], complaints: Complaints) -> Tree:
    """One tree of all dotted flags. A path that also leads through a value is refused."""
    tree: Tree = {}
    for path, flag in given.items():
        where = flag.source.name
        blocking = [other for other in given if path.startswith(f"{other}.")]
        if blocking:
            complaints.refuse(
                where,
                masked(path, flag.raw),
                f"contradicts {given[blocking[0]].source.name}, which gives all of it a value",
            )
            continue
        try:
            leaf = Leaf(_read(path, str(flag.raw)), where)
        except ValueError as error:
            complaints.refuse(where, masked(path, flag.raw), str(error))
            continue
        tree = merge(tree, branch(path, leaf), [])
    return tree


def _number(text: str) -> int | float | None:
    if len(text) > _LONGEST_NUMBER:
        return None
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if not math.isfinite(number):
            raise ValueError("is no finite number")
        return number
    return None


def _list(text: str) -> list[object] | None:
    """In JSON. Upstream leaves it a text, which no argument that is a list takes."""
    if not text.startswith("["):
        return None
    try:
        found = cast("list[object]", read_json(text))
    except RecursionError:
        raise ValueError("is nested too deep") from None
    except ValueError:
        return None
    measure(found)
    return found
