"""What the driver hears of processors that fail, and when."""

from __future__ import annotations

import fcntl
from pathlib import Path

from actors.engines.trtllm.processors.factories import EngineProcessor, Factories, attach
from actors.engines.trtllm.processors.patience import Patience
from actors.engines.trtllm.processors.spool import Spool
from actors.engines.trtllm.processors.steersman import Steersman
from protocols.bounds import Bound
from protocols.spec import ProcessorEntry
from tests.actors.engines.torch.hostile_processors import BROKEN, without_lines
from tests.actors.engines.trtllm.operators_processors import Broken, Looping
from tests.actors.engines.trtllm.test_processors import ME, ids, is_ending, logits, spec
from tests.doubles.listeners import RecordingTelemetry

FACTORIES = Factories.of({"Broken": Broken, "Looping": Looping})


def attached(spool: Spool, name: str, **options: object) -> EngineProcessor:
    wanted = spec(ProcessorEntry(name=name, options=options))
    processor = attach(wanted, ME, FACTORIES, spool, is_overlapped=False)
    assert processor is not None
    return processor


def test_code_that_does_not_come_back_is_interrupted(tmp_path: Path) -> None:
    """It would hold up the whole batch, for ever; it counts as a bound that was reached."""
    told = RecordingTelemetry()
    spool = Spool.make([tmp_path], told.bound_reached)
    orders = attached(spool, "Looping").orders
    steersman = Steersman(orders, Patience(0.05))
    changed = logits(1, 1)
    steersman.steer((1, 1), changed, ids(), None)
    assert spool.read(ME).failure == "logits processor 'Looping' did not return within 0.05 s"
    assert is_ending(changed)
    assert told.bounds == {Bound.FOREIGN_TIME: 1}
    spool.remove()


def test_a_failure_that_could_not_be_written_is_written_with_a_later_token(tmp_path: Path) -> None:
    """Another rank had the file: the request would end early, and nothing would say why."""
    spool = Spool.make([tmp_path])
    processor = attached(spool, "Broken", kind="raising")
    with Path(processor.orders.spool).open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        processor(1, logits(1, 1), ids(), None)
        assert spool.read(ME).failure is None
    changed = logits(1, 1)
    processor(1, changed, ids(1), None)
    assert without_lines(spool.read(ME).failure) == f"logits processor 'Broken' {BROKEN['raising'][1]}"
    assert is_ending(changed)
    spool.remove()
