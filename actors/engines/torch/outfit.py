"""What a sequence gets at its start beside tokens: its penalties, its processors, its grammar's state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

import torch

from actors.engines.foreign.processors import Factory, Processor, processors_of
from actors.engines.foreign.steering_failed import SteeringFailed
from actors.engines.torch.grammars.matcher import GrammarState
from actors.engines.torch.lanes import Lanes
from actors.engines.torch.penalties import Penalties
from actors.engines.torch.sequence import Sequence
from actors.engines.torch.steering import Steering
from protocols.bounds import OnBound
from protocols.spec import Guided
from protocols.steps import ProcessorUse


def _new_state(guided: Guided) -> GrammarState:
    """Raises SteeringFailed, whatever the grammar's library does."""
    try:
        state: GrammarState = guided.grammar.new_state()
    except BaseException as exc:
        raise SteeringFailed(f"the grammar failed ({type(exc).__name__})") from exc
    return state


class Outfitter:
    """Only the engine's thread calls it. The two callbacks are called in other threads, too."""

    def __init__(
        self,
        device: torch.device,
        factories: Mapping[str, Factory],
        on_late_done: Callable[[], None],
        on_bound: OnBound,
    ) -> None:
        self._device = device
        self._factories = factories
        self._lanes = Lanes.open(on_late_done, on_bound)
        self._in_use: list[tuple[Sequence, list[Processor]]] = []

    def fit_out(self, sequence: Sequence) -> None:
        """Give a new sequence what its spec asks for. Raises SteeringFailed."""
        spec = sequence.spec
        if Penalties.needed(spec.sampling):
            sequence.penalties = Penalties(spec.sampling, spec.prompt, self._device)
        if spec.processors or spec.guided is not None:
            processors = processors_of(spec.processors, self._factories)
            grammar = None if spec.guided is None else _new_state(spec.guided)
            sequence.steering = Steering(self._lanes, processors, grammar)
            sequence.steering.prepare()
            self._in_use.append((sequence, processors))

    def take_use(self) -> tuple[ProcessorUse, ...]:
        """What the logits processors of each name cost since the last call."""
        if not self._in_use:
            return ()
        totals: defaultdict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
        for _, processors in self._in_use:
            for processor in processors:
                tokens, seconds = processor.take_use()
                before = totals[processor.name]
                totals[processor.name] = (before[0] + tokens, before[1] + seconds)
        self._in_use = [(sequence, own) for sequence, own in self._in_use if not sequence.is_ended]
        return tuple(ProcessorUse(name, *total) for name, total in totals.items() if total[0])

    def close(self) -> None:
        """No more steps, for nobody: what still runs need not."""
        for sequence, _ in self._in_use:
            if sequence.steering is not None:
                sequence.steering.leave()
        self._lanes.close()
