"""Does the ragged path give what the model's own attention gives? Asked at every start.

This catches what no rule can: a model that ignores our function for some layers, adds a bias we
never see, or masks in a way that is not passed on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from actors.engines.torch.attention import Call, PagedAttention, attending
from actors.engines.torch.batch import BatchBuilder
from actors.engines.torch.kv_cache import KvCache, LayerShape, Scratch
from actors.engines.torch.pulse import Pulse
from actors.engines.torch.scheduler import Chunk
from actors.engines.torch.sequence import Request
from protocols.errors import EngineStartError
from protocols.spec import GenerationSpec, StopRules
from protocols.steps import EngineId

# Two prompts; the first is cut at 7, so that a chunk boundary and a mixed step are part of the test.
_LENGTHS = (19, 11)
_CUT = 7
_BLOCK_TOKENS = 4
# Largest difference of logits: absolute for float32, a share of the largest logit for bfloat16.
_FLOAT32_TOLERANCE = 1e-3
_BFLOAT16_TOLERANCE = 5e-2


@dataclass(frozen=True, slots=True)
class Reference:
    """Random prompts and the logits ``[tokens, vocabulary]`` of the model's own eager path."""

    prompts: list[list[int]]
    logits: list[Tensor]


class ShapeProbe:
    """Answers attention calls with zeros and notes what each layer was called with."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def attend(self, call: Call) -> Tensor:
        """Zeros of the right shape."""
        self.calls.append(call)
        return call.query.new_zeros(1, call.query.shape[2], call.query.shape[1], call.value.shape[-1])


def reference(model: Any, vocab_size: int, device: torch.device) -> Reference:
    """Run the model as transformers would, one prompt at a time."""
    generator = torch.Generator().manual_seed(20)
    numbers: Any = torch.randint(vocab_size, (sum(_LENGTHS),), generator=generator)
    prompts: list[list[int]] = [part.tolist() for part in numbers.split(_LENGTHS)]
    logits = [model(input_ids=torch.tensor([p], device=device), use_cache=False).logits[0] for p in prompts]
    return Reference(prompts, logits)


def probe_shapes(model: Any, config: Any, device: torch.device) -> list[LayerShape]:
    """K and V shapes per layer, from one call. Raises EngineStartError unless each layer calls once."""
    probe = ShapeProbe()
    ids = torch.zeros(1, 1, dtype=torch.long, device=device)
    with attending(probe):
        model(input_ids=ids, position_ids=ids, use_cache=False, logits_to_keep=ids[0])
    layers = [call.layer for call in probe.calls]
    if layers != list(range(config.num_hidden_layers)):
        _fail(config, f"its {config.num_hidden_layers} layers made attention calls {layers}")
    for call, kind in zip(probe.calls, getattr(config, "layer_types", None) or (), strict=False):
        if kind == "sliding_attention" and call.window is None:
            _fail(config, f"layer {call.layer} slides but passes no window on")
    return [LayerShape(c.key.shape[1], c.key.shape[3], c.value.shape[3]) for c in probe.calls]


def check_ragged(model: Any, config: Any, expected: Reference, shapes: list[LayerShape]) -> None:
    """Compare the ragged path with the reference. Raises EngineStartError when they differ."""
    first = expected.logits[0]
    run = _ragged_runner(model, shapes, first.dtype, first.device)
    sequences = [
        Request(EngineId(i), GenerationSpec(prompt=tuple(p[:-1]), stop=StopRules(max_tokens=1)), i).sequences[
            0
        ]
        for i, p in enumerate(expected.prompts)
    ]
    for number, sequence in enumerate(sequences):
        # As if it were output: those have attention calls of another form.
        sequence.tokens.append(expected.prompts[number][-1])
        sequence.blocks = [2 * block + number for block in range(8)]
    one, two = sequences
    steps = [
        [Chunk(one, 0, _CUT)],
        [Chunk(one, _CUT, _LENGTHS[0] - _CUT - 1), Chunk(two, 0, _LENGTHS[1] - 1)],
        [Chunk(one, _LENGTHS[0] - 1, 1), Chunk(two, _LENGTHS[1] - 1, 1)],
    ]
    for chunks in steps:
        for chunk, found in run(chunks):
            wanted = expected.logits[chunk.sequence.arrival][chunk.start : chunk.end]
            _compare(config, found, wanted)


def _ragged_runner(
    model: Any, shapes: list[LayerShape], dtype: torch.dtype, device: torch.device
) -> Callable[[list[Chunk]], list[tuple[Chunk, Tensor]]]:
    """A function that runs chunks through a small cache and returns the logits of all their rows."""
    cache = KvCache(shapes, 16, _BLOCK_TOKENS, dtype, device)
    widest = max(shape.kv_heads * max(shape.key_width, shape.value_width) for shape in shapes)
    scratch = (Scratch(64 * widest, dtype, device), Scratch(64 * widest, dtype, device))
    builder = BatchBuilder(_BLOCK_TOKENS, group_tokens=64, device=device)

    def run(chunks: list[Chunk]) -> list[tuple[Chunk, Tensor]]:
        batch = builder.build(chunks)
        with attending(PagedAttention(cache, scratch, batch, Pulse())):
            rows = torch.arange(batch.ids.shape[1], device=device)
            output = model(
                input_ids=batch.ids, position_ids=batch.positions, use_cache=False, logits_to_keep=rows
            )
        return list(zip(batch.parts, output.logits[0].split([p.rows for p in batch.parts]), strict=True))

    return run


def _compare(config: Any, found: Tensor, wanted: Tensor) -> None:
    difference = (found - wanted).abs().max().item()
    tolerance = _FLOAT32_TOLERANCE
    if wanted.dtype is torch.bfloat16:
        tolerance = _BFLOAT16_TOLERANCE * wanted.abs().max().item()
    if not difference <= tolerance:
        _fail(
            config,
            f"logits differ by {difference:.2g} from the model's own attention, allowed is {tolerance:.2g}",
        )


def _fail(config: Any, reason: str) -> None:
    raise EngineStartError(
        f"the torch engine does not run this model of type {config.model_type!r}: in the self-test {reason}.",
        "Choose another model.",
    )
