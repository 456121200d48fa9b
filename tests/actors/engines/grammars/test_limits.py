"""What is refused for its size, and what is kept."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.grammars.cache import ConstraintCache
from actors.engines.grammars.complaints import brief
from actors.engines.grammars.limits import MOST_SOURCE_BYTES, check_depth, text_of
from actors.engines.grammars.plain import is_longer
from protocols.bounds import Bound
from protocols.errors import InvalidRequest
from protocols.spec import Guided, GuidedKind
from tests.doubles.listeners import RecordingTelemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from actors.engines.torch.grammars.compiler import CompiledGrammar
    from tests.actors.engines.grammars.world import Guide


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def nested(levels: int, inner: Any = None) -> Any:
    value = {} if inner is None else inner
    for _ in range(levels - 1):
        value = {"items": value}
    return value


@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("letter", ["a", "é"])
def test_a_source_has_at_most_64_kib(over: int, letter: str) -> None:
    """The bound is in bytes, exact, and the refusal says field and what is allowed."""
    size = len(letter.encode())
    text = letter * (MOST_SOURCE_BYTES // size) + "x" * over
    guided = Guided(kind=GuidedKind.REGEX, constraint=text)
    if not over:
        assert text_of(guided) == text
        return
    with pytest.raises(InvalidRequest) as refused:
        text_of(guided)
    assert str(refused.value) == (
        "sampling_options.guided_decoding.regex: a longer constraint is not accepted: "
        "at most 65536 bytes of text"
    )


def test_wide_schemas_that_do_not_fit(guide: Guide) -> None:
    """20,000 enum values, and 500 properties of 50 values, are refused for their size before any work."""
    values = {"enum": [f"value-{number}" for number in range(20_000)]}
    wide = {"properties": {f"p{at}": {"enum": [f"v{value}" for value in range(50)]} for at in range(500)}}
    for schema in (values, wide):
        with pytest.raises(InvalidRequest, match="at most 65536 bytes"):
            guide.compile("json", schema)


def test_what_fits_is_compiled(guide: Guide) -> None:
    """4,000 enum values, and 500 optional properties, are within the limits; 1,000 are refused beforehand."""
    values = {"enum": [f"value-{number}" for number in range(4_000)]}
    assert guide.accepts(guide.compile("json", values), '"value-3999"')
    number = {"type": "integer"}
    wide = {"type": "object", "properties": {f"p{at}": number for at in range(500)}}
    answer = ",".join(f'"p{at}":{at}' for at in range(0, 500, 12))
    assert guide.accepts(guide.compile("json", wide), f"{{{answer}}}")
    with pytest.raises(InvalidRequest, match="costs less to follow"):
        guide.compile("json", {"type": "object", "properties": {f"p{at}": number for at in range(1_000)}})


def test_nesting_is_bounded(guide: Guide) -> None:
    """64 levels are followed, 65 refused; thousands, also as text, are refused and no crash."""
    assert guide.accepts(guide.compile("json", nested(64, {"type": "null"})), "null")
    with pytest.raises(InvalidRequest, match="at most 64 levels"):
        guide.compile("json", nested(65))
    with pytest.raises(InvalidRequest):
        guide.compile("json", "[" * 30_000)
    with pytest.raises(InvalidRequest):
        guide.compile("json", nested(5_000))
    with pytest.raises(InvalidRequest):
        guide.compile("structural_tag", {"type": "structural_tag", "format": nested(70)})


class Unread(list[Any]):
    """A list that fails the test when somebody looks into it."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("looked at more than is needed")


@pytest.mark.parametrize("wrap", [lambda many: many, lambda many: {"a": [many]}, lambda many: [[1], many]])
def test_a_long_constraint_is_not_looked_through(wrap: Callable[[Any], Any]) -> None:
    """A request may bring tens of megabytes: only what is needed to refuse it is looked at."""
    with pytest.raises(InvalidRequest, match="a longer constraint"):
        text_of(Guided(kind=GuidedKind.JSON, constraint=wrap(Unread([1] * 10**6))))


@given(JSON)
def test_no_length_is_overstated(value: Any) -> None:
    """What is refused for its length before it was written is as long as that, written."""
    written = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    assert not is_longer(value, written)


@given(
    st.recursive(
        st.integers(0, 9) | st.text("ab"),
        lambda inner: st.lists(inner) | st.dictionaries(st.text("ab"), inner),
    )
)
def test_no_length_is_understated_where_nothing_is_escaped(value: Any) -> None:
    """Digits, plain letters and what holds them are counted to the character; a long number almost."""
    written = len(json.dumps(value, separators=(",", ":")))
    assert is_longer(value, written - 1)
    assert is_longer(10**400, 390)


@given(st.recursive(st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_depth_is_counted_right(value: Any) -> None:
    """Wrapped so that it just fits, a value passes; one level more, and it does not."""

    def depth(value: Any) -> int:
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return 1 + max((depth(one) for one in inside if isinstance(one, dict | list)), default=0)

    fitting = nested(65 - depth(value), value)
    check_depth(fitting, "x")
    with pytest.raises(InvalidRequest):
        check_depth([fitting], "x")


def test_what_json_cannot_say(guide: Guide) -> None:
    """A constraint that is no JSON is refused; it could only come from our own side."""
    with pytest.raises(InvalidRequest, match="what JSON can say"):
        guide.compile("json", {"enum": [object()]})


def test_the_least_recently_used_goes(guide: Guide) -> None:
    """The cache is bounded in entries, and what was used last stays."""
    told = RecordingTelemetry()
    cache: ConstraintCache[CompiledGrammar] = ConstraintCache(entries=2, on_bound=told.bound_reached)
    constraints = [Guided(kind=GuidedKind.REGEX, constraint=letter) for letter in "abc"]
    grammars = [guide.compile("regex", letter) for letter in "abc"]
    cache.keep(constraints[0], grammars[0], 1)
    cache.keep(constraints[1], grammars[1], 1)
    assert cache.find(constraints[0]) is grammars[0]
    assert told.bounds == {}
    cache.keep(constraints[2], grammars[2], 1)
    assert told.bounds == {Bound.GRAMMAR_CACHE: 1}
    assert [cache.find(one) for one in constraints] == [grammars[0], None, grammars[2]]


def test_the_cache_is_bounded_in_bytes(guide: Guide) -> None:
    """Those of the grammars and their sources; one that is kept twice counts once, as what it was last."""
    cache: ConstraintCache[CompiledGrammar] = ConstraintCache(most_bytes=100)
    grammar = guide.compile("regex", "a")
    constraints = [Guided(kind=GuidedKind.REGEX, constraint=letter * 4) for letter in "abc"]
    for size, one in ((90, 0), (30, 0), (46, 1), (46, 2)):
        cache.keep(constraints[one], grammar, size)
    assert [cache.find(one) is grammar for one in constraints] == [False, True, True]
    cache.keep(constraints[0], grammar, 97)
    assert [cache.find(one) for one in constraints] == [None, None, None]


def test_constraints_that_differ_are_kept_apart(guide: Guide) -> None:
    """Another order of properties, another kind, or text for an object is another constraint."""
    cache: ConstraintCache[CompiledGrammar] = ConstraintCache()
    properties = {"a": {"type": "null"}, "b": {"type": "null"}}
    turned = {"b": {"type": "null"}, "a": {"type": "null"}}
    kept = Guided(kind=GuidedKind.JSON, constraint={"properties": properties})
    cache.keep(kept, guide.compile("json", kept.constraint), 1)
    assert cache.find(Guided(kind=GuidedKind.JSON, constraint={"properties": dict(properties)})) is not None
    assert cache.find(Guided(kind=GuidedKind.JSON, constraint={"properties": turned})) is None
    assert cache.find(Guided(kind=GuidedKind.JSON, constraint=json.dumps(kept.constraint))) is None
    assert cache.find(Guided(kind=GuidedKind.STRUCTURAL_TAG, constraint=kept.constraint)) is None


def test_the_cache_is_used_from_many_threads(guide: Guide) -> None:
    """Finding in one thread and keeping in others loses nothing and breaks nothing."""
    cache: ConstraintCache[CompiledGrammar] = ConstraintCache(entries=8)
    grammar = guide.compile("regex", "a")
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for number in range(300):
                guided = Guided(kind=GuidedKind.REGEX, constraint=f"{(number * seed) % 20}")
                found: CompiledGrammar | None = cache.find(guided)
                assert found in (None, grammar)
                cache.keep(guided, grammar, 1)
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 3, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_complaints_are_short() -> None:
    """Of what llguidance says the line with the reason is left, and no more than 200 characters."""
    drawn = "at 1(8): invalid regex:\n    [a-\n    ^\nerror: unclosed character class\n  1 | start: /[a-/\n"
    assert brief(drawn) == "unclosed character class"
    assert len(brief("x" * 5000)) == 200
    assert brief("") == "no reason given"
