"""What tries constraints: each as its back-end compiles it; xgrammar's double, and xgrammar where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.trtllm.constraints import judging
from actors.engines.trtllm.constraints.guiding import Option
from actors.engines.trtllm.constraints.judging import Judge, llguidance_judge, xgrammar_judge
from protocols.errors import InvalidRequest
from protocols.spec import Guided, GuidedKind
from tests.actors.engines.trtllm.tool_schemas import TOOL_SCHEMAS
from tests.doubles.xgrammar_path import KINDS, xgrammar_on_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.actors.engines.grammars.world import Guide

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
GOOD: list[tuple[str, Any]] = [
    ("json", SCHEMA),
    ("json", {}),
    ("json", True),
    ("json", {"type": "integer", "minimum": 0}),
    ("regex", "[a-z]+"),
    ("choice", ["yes", "no", "a|b", "\0"]),
    ("grammar", 'root ::= "a" | "b"'),
    *(("json", schema) for schema in TOOL_SCHEMAS),
    ("json", {"type": "string", "oneOf": [{"const": "a"}, {"const": "b"}]}),
]
TAG = {"type": "tag", "begin": "<a>", "content": {"type": "any_text"}, "end": "</a>"}
BAD: list[tuple[str, Any, str]] = [
    ("json", {"type": "objekt"}, "objekt"),
    ("json", "{not json", "a JSON schema"),
    ("json", False, "a JSON schema"),
    ("json", {"oneOf": [{"type": "integer"}, {"type": "number"}]}, "say anyOf"),
    ("regex", "[a-", "can follow"),
    ("regex", "(?=a)b", "can follow"),
    ("grammar", "root ::= missing", "missing"),
]
REFUSED: list[tuple[str, Any]] = [
    *((kind, value) for kind, value, _ in BAD),
    ("json", {"type": "integer", "minimum": 5, "maximum": 3}),
    ("json", {"type": "string", "format": "frob"}),
    ("regex", "a{0}"),
    ("choice", []),
    ("grammar", 'root ::= "a" dead\ndead ::= "x" dead'),
    ("grammar", 'start: "a" missing'),
    ("structural_tag", {"type": "structural_tag", "format": {"type": "frob"}}),
]


def constraint(kind: str, value: Any) -> Guided:
    return Guided(kind=GuidedKind(kind), constraint=value)


@pytest.fixture(params=["llguidance", *KINDS])
def judge(request: pytest.FixtureRequest, guide: Guide) -> Iterator[Judge]:
    """Of either back-end."""
    if request.param == "llguidance":
        yield llguidance_judge(guide.vocabulary)
        return
    with xgrammar_on_path(request.param):
        yield xgrammar_judge(guide.vocabulary)


@pytest.fixture(params=KINDS)
def strict(request: pytest.FixtureRequest, guide: Guide) -> Iterator[Judge]:
    """Of xgrammar only."""
    with xgrammar_on_path(request.param):
        yield xgrammar_judge(guide.vocabulary)


@pytest.mark.parametrize(("kind", "value"), GOOD)
def test_good_constraints_are_compiled(judge: Judge, kind: str, value: Any) -> None:
    """There is something to keep of each."""
    assert judge(constraint(kind, value)) is not None


@pytest.mark.parametrize(("kind", "value", "said"), BAD)
def test_bad_constraints_are_refused(judge: Judge, kind: str, value: Any, said: str) -> None:
    """By the name of their kind, with a reason in which no source file of a library is named."""
    with pytest.raises(InvalidRequest) as refused:
        judge(constraint(kind, value))
    assert refused.value.field.startswith(f"sampling_options.guided_decoding.{kind}")
    assert said in refused.value.allowed
    assert ".cc" not in refused.value.allowed


@pytest.mark.parametrize(("kind", "value"), REFUSED)
def test_a_refusal_of_llguidance_does_not_name_xgrammar(guide: Guide, kind: str, value: Any) -> None:
    """Whoever wrote the constraint looks up what this back-end obeys."""
    with pytest.raises(InvalidRequest) as refused:
        llguidance_judge(guide.vocabulary)(constraint(kind, value))
    assert "xgrammar" not in refused.value.allowed


@pytest.mark.parametrize(("kind", "value"), REFUSED)
def test_a_refusal_of_xgrammar_does_not_name_llguidance(strict: Judge, kind: str, value: Any) -> None:
    """Although that is asked, too."""
    with pytest.raises(InvalidRequest) as refused:
        strict(constraint(kind, value))
    assert "llguidance" not in refused.value.allowed


@pytest.mark.parametrize(("kind", "value"), [each for each in REFUSED if each[0] in {"json", "regex"}])
def test_a_refusal_for_an_xgrammar_that_is_elsewhere(
    guide: Guide, monkeypatch: pytest.MonkeyPatch, kind: str, value: Any
) -> None:
    """Only llguidance can be asked: it speaks for the back-end in use, and is not named."""
    monkeypatch.setattr(judging, "find_spec", lambda _: None)
    with pytest.raises(InvalidRequest) as refused:
        xgrammar_judge(guide.vocabulary)(constraint(kind, value))
    assert "llguidance" not in refused.value.allowed


def test_a_constraint_that_only_the_engine_refuses(guide: Guide, monkeypatch: pytest.MonkeyPatch) -> None:
    """What our limits let through has still to get through the engine's own call."""
    monkeypatch.setitem(judging._TO_LLGUIDANCE, Option.REGEX, lambda _: "start: /[a-/")
    judge = llguidance_judge(guide.vocabulary)
    with pytest.raises(InvalidRequest, match="what TensorRT-LLM's llguidance can follow"):
        judge(constraint("regex", "a+"))


@pytest.mark.parametrize("inner", [{"minimum": 0}, {"minimum": 1, "maximum": 10}, {}])
def test_bounds_that_are_held(strict: Judge, inner: dict[str, int]) -> None:
    """With these bounds no number outside of them can be answered, and nothing is said."""
    schema = {"type": "object", "properties": {"n": {"type": "integer", **inner}}}
    assert strict(constraint("json", schema)) is not None


def test_a_bound_that_is_not_held(guide: Guide) -> None:
    """Where xgrammar could answer a number below the least one, the schema is refused, and says which."""
    with xgrammar_on_path(KINDS[0]):
        judge = xgrammar_judge(guide.vocabulary)
        with pytest.raises(InvalidRequest, match=r"bounds that xgrammar holds.*it could answer 1"):
            judge(constraint("json", {"type": "integer", "minimum": 5}))


def test_structural_tags_are_compiled_by_xgrammar(strict: Judge) -> None:
    """Also the older form; a format that this version does not know is refused with its reason."""
    assert strict(constraint("structural_tag", {"type": "structural_tag", "format": TAG})) is not None
    older = {"structures": [{"begin": "<a>", "schema": {"type": "null"}, "end": "</a>"}], "triggers": ["<a"]}
    assert strict(constraint("structural_tag", older)) is not None
    unknown = {"type": "structural_tag", "format": {"type": "token", "token": 1}}
    with pytest.raises(InvalidRequest, match="Format type not recognized"):
        strict(constraint("structural_tag", unknown))


def test_an_empty_answer_is_none(strict: Judge) -> None:
    """What only the empty answer matches is refused, as by the other engine."""
    with pytest.raises(InvalidRequest, match="other answers than the empty one"):
        strict(constraint("regex", "a{0}"))


@pytest.mark.parametrize(("kind", "value"), GOOD)
def test_without_xgrammar(guide: Guide, monkeypatch: pytest.MonkeyPatch, kind: str, value: Any) -> None:
    """Good constraints are let through, and schemas and patterns still judged, by llguidance."""
    monkeypatch.setattr(judging, "find_spec", lambda _: None)
    judge = xgrammar_judge(guide.vocabulary)
    assert judge(constraint(kind, value)) is not None
    for bad, wrong in (("json", {"type": "objekt"}), ("regex", "[a-"), ("grammar", "nonsense")):
        with pytest.raises(InvalidRequest):
            judge(constraint(bad, wrong))
