"""Whether an answer that obeys a grammar of xgrammar can always be ended.

Where it cannot, xgrammar forbids every token there is. TensorRT-LLM makes probabilities of that which are no
numbers, and the assertion that follows ends the device's work for all requests.
"""

from __future__ import annotations

from actors.engines.grammars.rules import Unread
from actors.engines.grammars.walks import ends_refusal
from actors.engines.trtllm.constraints.xgrammar_gbnf import ROOT, characters_of, is_empty_class, rules_of
from protocols.errors import InvalidRequest

_ALL = frozenset(range(256))


def check_ends(text: str, field: str, value: object, sayable: frozenset[int] = _ALL) -> None:
    """Raises InvalidRequest for a rule that can be reached and never ends, and for text nobody can say.

    value: what the field is to be blamed for. sayable: the bytes that are in tokens. A text that cannot be
    read here is let through: xgrammar will say what is wrong with it.
    """

    def is_dead(word: str) -> bool:
        if word.startswith('"'):
            return not sayable.issuperset(characters_of(word).encode(errors="surrogatepass"))
        return is_empty_class(word)

    try:
        endless = rules_of(text).endless(ROOT, is_dead)
    except Unread:
        return
    if endless is not None:
        raise InvalidRequest(field, value, ends_refusal(endless))
