"""Whether everything fits, decided with numbers before the first large allocation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from actors.engines.torch.config import TorchConfig
from actors.engines.torch.scheduler import PIECE_TOKENS
from protocols.errors import EngineStartError

_GB = 10**9
# An idle worker should not take the machine: the KV cache gets a quarter of what is free.
_POOL_SHARE = 0.25
# Left for activations, the Python heap and everybody else.
_RESERVE_SHARE = 0.05


def available_bytes(root: Path = Path("/")) -> int:
    """Memory this process can still take: what the kernel calls available, within the cgroup's limit.

    ``root`` is where ``proc`` and ``sys`` are mounted.
    """
    free = _meminfo_available(root / "proc/meminfo")
    limits = [_cgroup_free(folder) for folder in _cgroup_folders(root)]
    return min([free, *(limit for limit in limits if limit is not None)])


def _meminfo_available(meminfo: Path) -> int:
    for line in meminfo.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise EngineStartError(f"{meminfo} has no MemAvailable line.", "Set memory_gb.")


def _cgroup_folders(root: Path) -> list[Path]:
    """This process's memory cgroup and those above it; version 2 or 1, as seen from inside."""
    folders: list[Path] = []
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return folders
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "" or "memory" in controllers.split(","):
            mount = root / "sys/fs/cgroup" / ("memory" if controllers else "")
            inner = mount / path.lstrip("/")
            folders += [inner, *(parent for parent in inner.parents if parent.is_relative_to(mount))]
    return folders


def _cgroup_free(folder: Path) -> int | None:
    """Limit minus use, page cache not counted as use; None where there is no limit."""
    for limit_name, use_name in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            limit, use = (folder / limit_name).read_text().strip(), (folder / use_name).read_text().strip()
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        except OSError:
            continue
        if limit == "max":
            return None
        cache = int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))
        return max(0, int(limit) - int(use) + cache)
    return None


@dataclass(frozen=True, slots=True)
class Needs:
    """What a model takes, in bytes; ``kv_per_token`` for K and V over all layers.

    weights: parameters as they will lie in memory, packed copies included. loading: what is needed
    on top for a moment while loading. row: buffers for one sampled row, everything asked for.
    prompt_row: for one row of a prompt with logprobs. scratch_per_token: gathered K and V.
    """

    weights: int
    loading: int
    kv_per_token: int
    scratch_per_token: int
    row: int
    prompt_row: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """How the memory is divided."""

    context_length: int
    pool_blocks: int
    block_tokens: int

    @property
    def pool_tokens(self) -> int:
        """Tokens the KV cache holds."""
        return self.pool_blocks * self.block_tokens


def plan_memory(config: TorchConfig, needs: Needs, longest: int, free: int) -> MemoryPlan:
    """Divide ``free`` bytes. Raises EngineStartError with the numbers when it cannot be done.

    longest: tokens of context the model is made for. free: bytes this engine may take in all.
    """
    context = _context_length(config, longest)
    fixed = needs.weights + _row_buffers(config, needs) + needs.scratch_per_token * context
    budget = int(free * (1 - _RESERVE_SHARE))
    left = budget - fixed
    smallest = _blocks(context, config)
    block_bytes = needs.kv_per_token * config.kv_block_tokens
    if max(needs.loading, smallest * block_bytes) > left:
        raise EngineStartError(_shortage(config, needs, context, free), _remedy(config, needs, budget))
    if config.kv_pool_tokens is not None:
        blocks = config.kv_pool_tokens // config.kv_block_tokens
        if blocks * block_bytes > left:
            raise EngineStartError(_shortage(config, needs, context, free), "Lower kv_pool_tokens.")
    else:
        share = left if config.memory_gb is not None else min(left, int(budget * _POOL_SHARE))
        wanted = config.max_num_seqs * smallest
        blocks = max(smallest, min(share // block_bytes, wanted))
    return MemoryPlan(context, blocks, config.kv_block_tokens)


def _context_length(config: TorchConfig, longest: int) -> int:
    """Tokens of one sequence: never more than the model knows or the cache holds."""
    context = longest if config.max_seq_len is None else config.max_seq_len
    if context > longest:
        raise EngineStartError(f"max_seq_len {context} is above the model's {longest}.", "Lower max_seq_len.")
    if config.kv_pool_tokens is None:
        return context
    held = config.kv_pool_tokens // config.kv_block_tokens * config.kv_block_tokens
    if config.max_seq_len is not None and held < context:
        raise EngineStartError(
            f"kv_pool_tokens {config.kv_pool_tokens} holds {held} tokens, less than max_seq_len {context}.",
            "Raise kv_pool_tokens or lower max_seq_len.",
        )
    if held == 0:
        raise EngineStartError(
            f"kv_pool_tokens {config.kv_pool_tokens} is less than one block of {config.kv_block_tokens}.",
            "Raise kv_pool_tokens.",
        )
    return min(context, held)


def _row_buffers(config: TorchConfig, needs: Needs) -> int:
    """Bytes for the rows of one step: those that are sampled, and those of a prompt with logprobs."""
    # In chunks one prompt has its logits kept in a step, one piece of it; otherwise all that fit into it.
    prompt_rows = PIECE_TOKENS if config.is_chunked_prefill else config.step_tokens
    return needs.row * config.max_num_seqs + needs.prompt_row * prompt_rows


def _blocks(tokens: int, config: TorchConfig) -> int:
    return -(-tokens // config.kv_block_tokens)


def _shortage(config: TorchConfig, needs: Needs, context: int, free: int) -> str:
    pool_tokens = config.kv_pool_tokens or context
    buffers = _row_buffers(config, needs) + needs.scratch_per_token * context
    return (
        f"not enough memory: weights {_gb(needs.weights)}, loading {_gb(needs.loading)} for a moment, "
        f"KV cache of {pool_tokens} tokens {_gb(pool_tokens * needs.kv_per_token)}, "
        f"buffers {_gb(buffers)}; usable are {1 - _RESERVE_SHARE:.0%} of {_gb(free)}."
    )


def _remedy(config: TorchConfig, needs: Needs, budget: int) -> str:
    more = "Free memory" if config.memory_gb is None else "Raise memory_gb"
    room = budget - needs.weights - _row_buffers(config, needs)
    fitting = min(
        room // (needs.kv_per_token + needs.scratch_per_token),
        (room - needs.loading) // needs.scratch_per_token,
    )
    blocks = fitting // config.kv_block_tokens
    if blocks < 1:
        return f"{more}, lower max_num_seqs, or choose a smaller model."
    return f"{more}, or lower max_seq_len to {blocks * config.kv_block_tokens}."


def _gb(number: int) -> str:
    return f"{number / _GB:.2f} GB"
