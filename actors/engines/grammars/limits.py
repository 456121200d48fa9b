"""What a constraint may cost: the numbers, with where they come from, and how they are held to.

They bound the work before a request is admitted (sizes, `PREPARE_S`, the trial), what a grammar may cost
while it is followed (llguidance's own limits), and the memory of both (sizes, states, cache).
"""

from __future__ import annotations

import llguidance

from actors.engines.grammars.plain import as_list, as_object, is_longer, write_json
from protocols.errors import InvalidRequest
from protocols.spec import Guided, GuidedKind

# Bytes of a constraint's text. The largest schemas people write are some ten KiB; one of this size is
# compiled in 20 to 80 ms. 20,000 enum values, or 500 properties of 50 values, do not fit.
MOST_SOURCE_BYTES = 64 * 1024
# Levels of JSON in one another, where a schema spends two on every object.
MOST_DEPTH = 64
MOST_CHOICES = 1_000
# Numbers in a schema: how large a bound may be, how large a number whose multiples are asked for, and
# their digits, before and behind the point. The library's work grows with them.
MOST_NUMBER = 1e18
MOST_MULTIPLE = 20_000
MOST_DIGITS = 20
# References in a schema of which each leads to the next.
MOST_CHAINED = 64
# Rules of a grammar: converting GBNF takes time that grows with their square, 0.07 s at this many.
MOST_RULES = 500

# Seconds for each part of preparing one request: to try its processors, to try its constraint in another
# process, to compile it in this one. And of computing for the first mask.
PREPARE_S = 5.0
FIRST_MASK_S = 1.0
# Seconds that a guided request waits while the tokenizer is read, or while the process for trials starts.
# Both take one or two; what waits behind it waits as long.
READY_S = 8.0
# What a constraint may take in that process: CPU seconds, address space, and stack. The smallest stacks in
# this one are those of llguidance's own threads, 2 MiB. 500 rules that lead to one another need 1.6.
TRIAL_CPU_S = 1.0
TRIAL_MEMORY_BYTES = 256 * 1024 * 1024
TRIAL_STACK_BYTES = 1792 * 1024
# Bytes of one compiled grammar.
MOST_GRAMMAR_BYTES = 16 * 1024 * 1024
# Tokens that are tried before a request is admitted: some grammars break only at the first.
TRIED_TOKENS = 3
# Then answers are tried until they end, for an engine that does not survive a dead end: so many, each with so
# many tokens, and all within so many seconds of computing. A usual schema's take 20 to 40 ms where there are
# 49,152 tokens, 3 where there are 259.
WALKS = 6
WALK_TOKENS = 64
WALK_S = 0.05
# Of computing, to look at the words of a Lark grammar one by one: 0.1 ms for each of a few, more of many.
PROBE_S = 0.2
# Threads that may be stuck in a preparation that nobody waits for any more.
MOST_STUCK = 4

# Compiled grammars that are kept, and their bytes together.
MOST_CACHED = 128
MOST_CACHED_BYTES = 64 * 1024 * 1024


# The text of an error would hold the output so far. TensorRT-LLM's llguidance is too old to be told.
_IS_TOLD = hasattr(llguidance.LLParserLimits, "verbose_errors")
_SILENT: dict[str, bool] = {"verbose_errors": False} if _IS_TOLD else {}


def parser_limits() -> llguidance.LLParserLimits:
    """llguidance's own limits. They count work, not time: the comments say what that is on one core."""
    return llguidance.LLParserLimits(
        # An object has four items for each optional property: enough for 600 of them. With 1,000 noting
        # one token takes 10 ms, with 500 it takes 3.
        max_items_in_row=2_500,
        # 20 ms. Enum values cost about 50 each.
        initial_lexer_fuel=1_000_000,
        # 7 ms, a third of a side lane's turn. Wide schemas and choices need less than 20,000.
        step_lexer_fuel=100_000,
        # Wide schemas need less than 5,000; what needs more is ambiguous and grows with every token.
        step_max_items=10_000,
        # One or two KiB each: 100 MB at the worst, for one sequence. A long string with a bounded length
        # has a state for each of its characters.
        max_lexer_states=50_000,
        # Symbols. 64 KiB of source make 30,000 at the most.
        max_grammar_size=200_000,
        precompute_large_lexemes=True,
        **_SILENT,
    )


def field_of(kind: GuidedKind) -> str:
    """The path of a constraint in the request."""
    return f"sampling_options.guided_decoding.{kind.value}"


def text_of(guided: Guided) -> str:
    """The constraint as text, the order of keys kept: properties are written in that order.

    Raises InvalidRequest for what is too long, and for what JSON cannot say.
    """
    field, constraint = field_of(guided.kind), guided.constraint
    # Looked at before anything is done with all of it: a request may bring tens of MB, to the event loop.
    is_text = isinstance(constraint, str)
    if len(constraint) > MOST_SOURCE_BYTES if is_text else is_longer(constraint, MOST_SOURCE_BYTES):
        raise _too_long(field)
    try:
        text: str = constraint if is_text else write_json(constraint)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as exc:
        raise InvalidRequest(field, constraint, f"what JSON can say ({type(exc).__name__})") from exc
    if size > MOST_SOURCE_BYTES:
        raise _too_long(field)
    return text


def _too_long(field: str) -> InvalidRequest:
    return InvalidRequest(field, _LongText(), f"at most {MOST_SOURCE_BYTES} bytes of text")


def check_depth(value: object, field: str) -> None:
    """Raises InvalidRequest where JSON is nested deeper than is allowed."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MOST_DEPTH:
            raise InvalidRequest(field, value, f"at most {MOST_DEPTH} levels of nesting")
        level = [inner for outer in level for inner in _inside(outer)]


def _inside(value: object) -> list[object]:
    members = as_object(value)
    inside = as_list(value) or [] if members is None else members.values()
    return [inner for inner in inside if isinstance(inner, dict | list)]


class _LongText:
    """Stands for a text that is not shown."""

    def __repr__(self) -> str:
        return "a longer constraint"
