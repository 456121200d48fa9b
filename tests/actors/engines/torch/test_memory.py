"""Memory: what does not fit is refused with numbers; what fits is divided as documented."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.engines.torch.config import TorchConfig
from actors.engines.torch.memory import MemoryPlan, Needs, available_bytes, plan_memory
from protocols.errors import EngineStartError

MIB = 2**20
# 1 KiB of K/V per token; a context of 1024 tokens takes 1 MiB.
NEEDS = Needs(
    weights=10 * MIB, loading=2 * MIB, kv_per_token=1024, scratch_per_token=64, row=1024, prompt_row=16
)


def plan(free_mib: float, longest: int = 1024, **config: Any) -> MemoryPlan:
    settings = TorchConfig(model_path=Path("model"), **config)
    return plan_memory(settings, NEEDS, longest, int(free_mib * MIB))


def test_the_pool_is_a_quarter_of_what_is_free() -> None:
    """Unasked, the cache takes 25 % of free memory (less the reserve), not all of it."""
    assert plan(100).pool_tokens * 1024 == pytest.approx(0.25 * 95 * MIB, rel=0.01)


def test_the_pool_is_never_larger_than_needed() -> None:
    """No more than max_num_seqs full contexts."""
    assert plan(10_000, max_num_seqs=3).pool_tokens == 3 * 1024


def test_the_pool_holds_one_context_at_least() -> None:
    """Even where a quarter of the memory would not do, one request of full length fits."""
    assert plan(14, longest=2000).pool_tokens >= 2000


def test_a_limit_by_the_operator_is_used_up() -> None:
    """With memory_gb the cache gets all that weights and buffers leave."""
    assert plan(100, memory_gb=0.09, max_num_seqs=100).pool_tokens * 1024 > 80 * MIB


@pytest.mark.parametrize(
    ("free_mib", "config", "words"),
    [
        (9, {}, ["weights 0.01 GB", "of 0.01 GB", "a smaller model"]),
        (11.5, {}, ["not enough memory", "loading 0.00 GB", "a smaller model"]),
        (14, {"longest": 9000}, ["KV cache of 9000 tokens", "lower max_seq_len to 3104"]),
        (14, {"max_seq_len": 4096}, ["above the model's 1024"]),
        (30, {"kv_pool_tokens": 100_000}, ["Lower kv_pool_tokens"]),
        (30, {"kv_pool_tokens": 100, "max_seq_len": 128}, ["holds 96 tokens", "max_seq_len 128"]),
        (30, {"kv_pool_tokens": 15}, ["less than one block of 16"]),
    ],
)
def test_what_does_not_fit_is_refused_with_numbers(
    free_mib: float, config: dict[str, Any], words: list[str]
) -> None:
    """The refusal names what is short and what to change."""
    with pytest.raises(EngineStartError) as refused:
        plan(free_mib, **config)
    for word in words:
        assert word in str(refused.value)


def test_the_advice_can_be_followed() -> None:
    """The context length that a refusal names is one that fits, and the next block would not."""
    assert plan(14, longest=9000, max_seq_len=3104).context_length == 3104
    with pytest.raises(EngineStartError):
        plan(14, longest=9000, max_seq_len=3104 + 16)


@pytest.mark.parametrize("is_chunked", [True, False])
def test_rows_of_prompts_are_reckoned_with(is_chunked: bool) -> None:
    """In chunks a step keeps the logits of one piece of a prompt, otherwise those of a whole step."""
    rows = 64 if is_chunked else 512
    settings = TorchConfig(model_path=Path("model"), is_chunked_prefill=is_chunked, step_tokens=512)
    large = replace(NEEDS, prompt_row=MIB // 4)
    fixed = large.weights + 64 * large.row + rows * large.prompt_row + 1024 * large.scratch_per_token
    enough = int((fixed + large.loading) / 0.95) + 2
    assert plan_memory(settings, large, 1024, enough).pool_tokens >= 1024
    with pytest.raises(EngineStartError, match=f"buffers {rows * MIB / 4e9:.2f} GB"):
        plan_memory(settings, large, 1024, enough - 4)


def test_what_loading_takes_limits_the_advice() -> None:
    """Where the moment of loading is what does not fit, the length that is advised is one that fits."""
    settings = TorchConfig(model_path=Path("model"), max_num_seqs=1)
    heavy = replace(NEEDS, loading=2 * MIB, kv_per_token=64, scratch_per_token=1024)
    with pytest.raises(EngineStartError) as refused:
        plan_memory(settings, heavy, 4096, 15 * MIB)
    advised = int(str(refused.value).rpartition("max_seq_len to ")[2].rstrip("."))
    assert (
        plan_memory(replace(settings, max_seq_len=advised), heavy, 4096, 15 * MIB).context_length == advised
    )
    with pytest.raises(EngineStartError):
        plan_memory(replace(settings, max_seq_len=advised + 16), heavy, 4096, 15 * MIB)


def test_the_context_is_what_the_pool_holds() -> None:
    """A pool smaller than the model's context limits the context: nothing is admitted that cannot fit."""
    small = plan(100, kv_pool_tokens=200)
    assert (small.context_length, small.pool_blocks) == (192, 12)


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = "MemTotal: 4000 kB\nMemAvailable:    2000 kB\n"


def test_available_without_a_limit(tmp_path: Path) -> None:
    """Without a cgroup limit it is what the kernel calls available."""
    assert available_bytes(write(tmp_path, proc__meminfo=MEMINFO)) == 2000 * 1024


def test_available_in_a_cgroup(tmp_path: Path) -> None:
    """A cgroup's limit counts, also that of a parent; page cache can be had back."""
    write(tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup="0::/box/inner\n")
    for folder, limit in (("box", "1000000"), ("box/inner", "max")):
        inside = tmp_path / "sys/fs/cgroup" / folder
        inside.mkdir(parents=True)
        write(
            inside,
            **{"memory.max": limit, "memory.current": "700000", "memory.stat": "inactive_file 100000\n"},
        )
    assert available_bytes(tmp_path) == 400_000


def test_available_in_a_version_1_cgroup(tmp_path: Path) -> None:
    """The older layout is read as well."""
    write(tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup="4:memory:/gone\n3:cpu:/x\n")
    inside = tmp_path / "sys/fs/cgroup/memory"
    inside.mkdir(parents=True)
    files = {"memory.limit_in_bytes": "900000", "memory.usage_in_bytes": "700000", "memory.stat": "cache 1\n"}
    write(inside, **files)
    assert available_bytes(tmp_path) == 200_000
