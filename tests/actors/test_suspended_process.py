"""A process that was suspended: its clock goes on, and nothing in it has."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

PATIENCE_S = 20.0

_STOPPED_WORKER = """
import asyncio, sys, time
from actors.engines.synthetic import SyntheticConfig, SyntheticEngine
from actors.graph import open_graph
from actors.settings import GraphSettings
from actors.supervisor import FutureWakeup
from actors.surroundings import Surroundings
from tests.doubles.callers import FakeCaller, Reader, wire_request
from tests.doubles.listeners import RecordingTelemetry

async def main():
    engine = SyntheticEngine(SyntheticConfig(step_ms=20, vocab_size=32000))
    around = Surroundings(engine=engine, telemetry=RecordingTelemetry(), clock=time.monotonic,
                          on_crash=lambda exc: print("crash", flush=True), new_wakeup=FutureWakeup)
    async with open_graph(GraphSettings(hang_timeout_s=0.5), around) as graph:
        reader = Reader(graph.submit(FakeCaller(), wire_request(max_tokens=100)).outbox)
        await reader.read()
        print("running", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await reader.read_to_end()
        print(len(reader.tokens), reader.finish_reasons[0], flush=True)

asyncio.run(main())
"""


def test_a_process_that_was_stopped_and_goes_on_is_no_hang() -> None:
    """Suspended for several time-outs in the middle of an answer, as a debugger or a full node does it."""
    argv = [sys.executable, "-c", _STOPPED_WORKER]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdin is not None
            assert worker.stdout is not None
            assert worker.stdout.readline() == "running\n"
            for _ in range(2):
                worker.send_signal(signal.SIGSTOP)
                time.sleep(1.5)
                worker.send_signal(signal.SIGCONT)
                time.sleep(0.1)
            worker.stdin.write("\n")
            worker.stdin.flush()
            assert worker.stdout.read() == "100 length\n"
            assert worker.wait(PATIENCE_S) == 0
        finally:
            worker.kill()
