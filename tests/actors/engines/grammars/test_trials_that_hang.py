"""A compiler that hangs keeps nobody waiting: the process in which it is tried is ended."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import psutil
import pytest

from actors.engines.grammars import trials as trials_module
from actors.engines.grammars.trial_child import Court
from actors.engines.grammars.trials import Trials
from protocols.errors import InvalidRequest
from protocols.spec import Guided, GuidedKind
from tests.actors.engines.grammars.stuck_judges import GOOD, HOME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.actors.engines.grammars.world import Guide

pytestmark = pytest.mark.timeout(60)


def said(text: str) -> Guided:
    return Guided(kind=GuidedKind.GRAMMAR, constraint=text)


@pytest.fixture(params=["computing", "waiting", "growing"])
def trials(request: pytest.FixtureRequest, guide: Guide, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trials]:
    """With a judge that hangs like this, and with less patience than usual where only that helps."""
    if request.param == "waiting":
        monkeypatch.setattr(trials_module, "PREPARE_S", 0.5)
    trials = Trials(court=Court(f"{HOME}:{request.param}", cpu_s=0.2))
    keeper = threading.Thread(target=trials.keep, args=(guide.vocabulary,))
    keeper.start()
    yield trials
    trials.close()
    keeper.join()


def test_what_hangs_is_ended_and_refused(trials: Trials) -> None:
    """By name, whatever it does meanwhile; the next constraint is tried by another process."""
    trials.check(said(GOOD))
    first = trials.pid
    assert first is not None
    with pytest.raises(InvalidRequest, match="costs less than is allowed") as refused:
        trials.check(said("a compiler's end"))
    assert refused.value.field == "sampling_options.guided_decoding.grammar"
    trials.check(said(GOOD))
    assert trials.pid != first
    assert not psutil.pid_exists(first)
