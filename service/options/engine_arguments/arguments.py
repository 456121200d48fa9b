"""From the resolved options to the keyword arguments of TensorRT-LLM's `LLM`. Nothing of it is imported here.

Weakest first: defaults of ours, the file of ``--extra-engine-args``, the worker's own flags, variables and
keys, ``--override-engine-args`` or the dotted flags. Objects are merged into each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from actors.engines.trtllm_facts import MAX_BATCH_SIZE, MAX_NUM_TOKENS, TOKENS_PER_BLOCK
from service.options.engine_arguments import worker_flags
from service.options.engine_arguments.adjust import Adjustment
from service.options.engine_arguments.documents import read_documents
from service.options.engine_arguments.names import NameCheck
from service.options.engine_arguments.reading import Reader
from service.options.engine_arguments.tree import Leaf, Tree, as_json, leaves, masked, merge, place, plain
from service.options.engine_arguments.typed_values import with_types
from service.options.engine_arguments.value_check import ValueCheck
from service.options.engine_arguments.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocols.spec import Stage
    from service.options.engine_arguments.role import Publishing
    from service.options.errors import Complaints
    from service.options.resolve import Resolution


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineArguments:
    """What `LLM` is built with, and what the worker must know of that beforehand. Lengths in tokens.

    values: plain data. origins: each value by dotted path, with who gave it.
    max_batch_size, max_num_tokens: of one rank. chooses_ranks: of a conversation it chooses the rank itself,
    whatever the router says.
    """

    values: Mapping[str, object]
    origins: tuple[tuple[str, Leaf], ...]
    role: Stage
    max_batch_size: int
    max_num_tokens: int
    max_seq_len: int | None
    kv_block_tokens: int
    has_chunked_prefill: bool
    chooses_ranks: bool
    trust_remote_code: bool

    @property
    def besides_model(self) -> dict[str, object]:
        """The values without the model, whose folder is known only when its files are there."""
        return {key: value for key, value in self.values.items() if key != "model"}

    def value(self, path: str) -> object:
        """What `LLM` gets there; None also where it gets nothing."""
        found: object = self.values
        for name in path.split("."):
            if not isinstance(found, Mapping):
                return None
            found = cast("Mapping[object, object]", found).get(name)
        return found

    def place(self, path: str) -> str:
        """What an operator has to look for: who gave the value, and where it stands there."""
        for name, leaf in self.origins:
            if name == path:
                return place(leaf.where, path)
            if path.startswith(f"{name}."):
                # A flag of ours stands for the whole group.
                return leaf.where or path
        return path

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Dotted path, value and who gave it, for people; what may be a secret is masked."""
        for path, leaf in sorted(self.origins, key=lambda origin: origin[0]):
            yield path, as_json(masked(path, leaf.value)), leaf.where or "default"

    def shown(self) -> str:
        """All of them in one line of JSON, masked."""
        return as_json(self.masked_values())

    def masked_values(self) -> dict[str, object]:
        """The values without what may be a secret, in the order of their names."""
        return {key: masked(key, value) for key, value in sorted(self.values.items())}


def engine_arguments(
    resolution: Resolution,
    role: Stage,
    publishing: Publishing,
    installed: str,
    complaints: Complaints,
) -> EngineArguments:
    """The arguments; mistakes and losing values go to ``complaints``.

    installed: the version of the distribution tensorrt-llm, "" where there is none.
    Reads the file of ``--extra-engine-args`` and nothing else.
    """
    losers: list[str] = []
    documents = read_documents(resolution, complaints, losers)
    for name, document in documents.by_name():
        NameCheck(name, installed, complaints).check(document)
    tree = worker_flags.defaults(resolution, role, publishing)
    extra, override = with_types(documents.extra), with_types(documents.override)
    for stronger in (extra, worker_flags.given(resolution), override):
        tree = merge(tree, stronger, losers)
    for loser in losers:
        complaints.warn(loser)
    tree = Adjustment(resolution, role, publishing, complaints).apply(tree)
    ValueCheck(tree, Verdict(installed, complaints), complaints).check()
    return _outline(tree, resolution, role)


def _outline(tree: Tree, resolution: Resolution, role: Stage) -> EngineArguments:
    reader = Reader(tree)
    return EngineArguments(
        values=cast("dict[str, object]", plain(tree)),
        origins=tuple(leaves(tree)),
        role=role,
        max_batch_size=reader.integer("max_batch_size", MAX_BATCH_SIZE),
        max_num_tokens=reader.integer("max_num_tokens", MAX_NUM_TOKENS),
        max_seq_len=reader.optional_integer("max_seq_len"),
        kv_block_tokens=reader.integer("kv_cache_config.tokens_per_block", TOKENS_PER_BLOCK),
        has_chunked_prefill=reader.boolean("enable_chunked_prefill"),
        chooses_ranks=resolution["conversation_affinity_dp_rank_source"].value == "engine",
        trust_remote_code=reader.boolean("trust_remote_code"),
    )
