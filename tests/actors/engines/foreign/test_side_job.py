"""One piece of foreign work: what it raised is kept, and it is interrupted once."""

from __future__ import annotations

import threading

from actors.engines.foreign.side_job import Interrupted, Job

PATIENCE_S = 10.0


class InterruptedLate(Job):
    """The interruption comes when the work is over, and the job is not."""

    __slots__ = ("_came",)

    def _leave(self) -> None:
        if not hasattr(self, "_came"):
            self._came = True
            raise Interrupted
        super()._leave()


def test_what_the_work_raised_is_told_and_not_what_came_too_late() -> None:
    """The request fails by its own fault: it was not slow."""

    def fail() -> None:
        raise ValueError("its own")

    failed = InterruptedLate(fail)
    failed.perform()
    assert isinstance(failed.error, ValueError)


def test_work_that_was_done_when_it_was_interrupted_counts_as_interrupted() -> None:
    """Somebody has given it up already."""
    done = InterruptedLate(lambda: None)
    done.perform()
    assert isinstance(done.error, Interrupted)


def test_work_that_survives_an_interruption_is_not_hit_again() -> None:
    """Foreign code may catch it to clean up: whoever looks twice does not break into that."""
    begun, caught, looked = threading.Event(), threading.Event(), threading.Event()
    cleaned: list[bool] = []

    def work() -> None:
        try:
            begun.set()
            while True:
                pass
        except Interrupted:
            caught.set()
            cleaned.append(looked.wait(PATIENCE_S))

    job = Job(work)
    thread = threading.Thread(target=job.perform)
    thread.start()
    assert begun.wait(PATIENCE_S)
    job.interrupt()
    assert caught.wait(PATIENCE_S)
    job.interrupt()
    looked.set()
    thread.join(PATIENCE_S)
    assert cleaned == [True]
    assert job.error is None
