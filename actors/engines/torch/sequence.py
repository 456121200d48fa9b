"""One running answer: its tokens, how far they are computed, and the blocks that hold them."""

from __future__ import annotations

from actors.engines.torch.penalties import Penalties
from actors.engines.torch.prefix_cache import Content, Entry, Root
from actors.engines.torch.steering import Steering
from protocols.spec import GenerationSpec
from protocols.steps import EngineId, Position


class Sequence:
    """State of one choice of a request. Only the engine's thread touches it.

    tokens: prompt and output so far. computed_tokens: how many of them have K/V in the cache.
    blocks: the KV blocks in order of position. entries: what is known of the first of them by content.
    content: what its blocks are known by. is_private: its blocks are not shared any more (their hash
    belongs to other content). arrival: smaller came first. known_tokens: those that were found in the
    cache when it last began to run. lost: ranges of its prompt that were computed before it had to begin
    again.
    steering, penalties: what changes its logits before a token is chosen, if anything does.
    """

    __slots__ = (
        "arrival",
        "blocks",
        "computed_tokens",
        "content",
        "entries",
        "index",
        "is_ended",
        "is_late",
        "is_paused",
        "is_private",
        "known_tokens",
        "lost",
        "penalties",
        "request",
        "spec",
        "steering",
        "tokens",
    )

    def __init__(self, request: Request, index: int, arrival: int) -> None:
        self.request = request
        self.spec = request.spec
        self.index = index
        self.arrival = arrival
        self.tokens = list(request.spec.prompt)
        self.content = Content(Root(request.spec.cache_salt), self.tokens, len(self.tokens))
        self.computed_tokens = 0
        self.known_tokens = 0
        self.lost: list[range] = []
        self.blocks: list[int] = []
        self.entries: list[Entry] = []
        self.steering: Steering | None = None
        self.penalties: Penalties | None = None
        self.is_private = False
        self.is_paused = False
        # Its next token is computed and not yet chosen: a processor or a grammar takes long.
        self.is_late = False
        # Nobody waits for it any more.
        self.is_ended = False

    @property
    def output_tokens(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - len(self.spec.prompt)

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that it never computed. Asked when the first token is there."""
        if not self.lost:
            return self.known_tokens
        return len(set(range(self.known_tokens)).difference(*self.lost))

    @property
    def pending_tokens(self) -> int:
        """Tokens still without K/V. At least 1, unless the next one is late: the newest is computed next."""
        return len(self.tokens) - self.computed_tokens

    @property
    def is_ready(self) -> bool:
        """Whether a step may compute it: not held back, nothing under way, its prompt not a sibling's."""
        return not self.is_paused and not self.is_late and (self.index == 0 or self.request.is_prompt_known)


class Request:
    """The choices of one submitted spec. Those that have ended are no longer in ``sequences``.

    is_prompt_known: choice 0 has computed the prompt; the others find its blocks in the cache.
    prompt_positions: logprobs of the prompt as far as they are computed, None when not asked for.
    """

    __slots__ = ("engine_id", "is_prompt_known", "prompt_positions", "sequences", "spec")

    def __init__(self, engine_id: EngineId, spec: GenerationSpec, arrival: int) -> None:
        self.engine_id = engine_id
        self.spec = spec
        self.is_prompt_known = False
        self.sequences = [Sequence(self, index, arrival + index) for index in range(spec.n)]
        self.prompt_positions: list[Position | None] | None = None
        if spec.output.prompt_logprobs is not None:
            self.prompt_positions = list[Position | None]([None] * len(spec.prompt))

    def ended(self, sequence: Sequence) -> None:
        """One choice is over."""
        self.sequences.remove(sequence)
        sequence.is_ended = True
