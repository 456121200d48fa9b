"""Choices that are the best of more: ``best_of`` above ``n``, and beam search."""

from __future__ import annotations

import math

from actors.lacking import lacking
from protocols.engine import EngineCapabilities
from protocols.errors import InvalidRequest
from protocols.requests import SamplingOptions
from protocols.spec import Search

# Beyond, a sum of log-probabilities times a power of the length leaves the range of 32-bit floats.
_LENGTH_PENALTY = 10.0
_ONE_PLACE = "it runs one sequence at a time (--max-num-seqs, --max-batch-size)"


def choice_search(
    options: SamplingOptions, n: int, engine: str, can: EngineCapabilities, capacity: int
) -> Search | None:
    """None where every choice that is made is returned. Raises InvalidRequest."""
    width = n if options.best_of is None else options.best_of
    why_no_beams = _why_no_beams(can, capacity)
    if options.use_beam_search:
        if why_no_beams:
            raise lacking("sampling_options.use_beam_search", True, engine, why_no_beams)
        return _beams(options, width, n, min(can.max_beams, capacity))
    if options.length_penalty is not None:
        field, penalty = "sampling_options.length_penalty", options.length_penalty
        if why_no_beams:
            raise lacking(field, penalty, engine, why_no_beams)
        raise InvalidRequest(field, penalty, "nothing without use_beam_search")
    most = min(can.max_best_of, capacity)
    if width == n:
        return None
    if not n <= width <= most:
        allowed = f"the value of n ({n}){f' to {most}' if most > n else ''}, or nothing"
        raise InvalidRequest("sampling_options.best_of", width, allowed)
    return Search(width=width)


def _why_no_beams(can: EngineCapabilities, capacity: int) -> str:
    if can.max_beams < 2:
        return can.no_beams
    return _ONE_PLACE if capacity < 2 else ""


def _beams(options: SamplingOptions, width: int, n: int, most: int) -> Search:
    if n > most:
        raise InvalidRequest("sampling_options.n", n, f"at most {most} of so many beams")
    if not n <= width <= most:
        raise InvalidRequest("sampling_options.best_of", width, f"{n} to {most} beams, or nothing")
    penalty = options.length_penalty
    if penalty is not None and not (math.isfinite(penalty) and abs(penalty) <= _LENGTH_PENALTY):
        allowed = f"a number from {-_LENGTH_PENALTY:g} to {_LENGTH_PENALTY:g}"
        raise InvalidRequest("sampling_options.length_penalty", penalty, allowed)
    return Search(width=width, is_beam=True, length_penalty=penalty)
