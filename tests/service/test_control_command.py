"""``drain``, ``resume``, ``status`` and ``trace`` from a shell: real HTTP to the routes of a real facade."""

from __future__ import annotations

import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from dynamo.llm.exceptions import EngineShutdown

from service.control_command import control_command
from tests.doubles.callers import wire_request
from tests.doubles.engines import ScriptedEngine
from tests.service.worker import synthetic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.service.conftest import OpenWorker
    from tests.service.worker import FacadeWorker


@contextmanager
def system_server(worker: FacadeWorker) -> Iterator[str]:
    """The control routes where the framework has them. Yields the address."""

    class Routes(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            name = self.path.removeprefix("/engine/control/")
            try:
                code, answer = 200, worker.loop.run(worker.facade.engine_control(name, body))
            except Exception as exc:
                code, answer = 500, {"message": str(exc)}
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Routes)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        serving.join()


def test_a_drain_that_lost_nobody_says_so(
    open_worker: OpenWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    """State, verdict, and that everybody finished; exit code 0 is safe to delete."""
    with open_worker() as worker:
        worker.open()
        with system_server(worker) as url:
            assert control_command("drain", ["--url", url, "--timeout", "5"]) == 0
            lines = capsys.readouterr().out.splitlines()
            assert lines[0] == "drained: 0 live, 0 in the engine; safe to delete"
            assert re.fullmatch(r"drained in \d+\.\d s: 0 of 0 finished", lines[1])
            assert control_command("resume", ["--url", url]) == 0
            assert capsys.readouterr().out == "serving: 0 live, 0 in the engine; NOT safe to delete\n"


def test_a_drain_that_cut_somebody_short_says_how_many_and_what_becomes_of_them(
    open_worker: OpenWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that a frontend can continue are told from those that are lost."""
    with open_worker(synthetic(5.0)) as worker:
        worker.open()
        calls = [worker.ask(wire_request(max_tokens=1900, n=n)) for n in (1, 1, 2)]
        worker.until(lambda: worker.graph.ledger.admitted == 3)
        readers = [threading.Thread(target=call.read_to_end) for call in calls]
        for reader in readers:
            reader.start()
        with system_server(worker) as url:
            assert control_command("drain", ["--url", url, "--timeout", "0.2"]) == 0
        for reader in readers:
            reader.join()
        assert all(isinstance(call.error, EngineShutdown) for call in calls)
    assert re.search(
        r"^drained in \d+\.\d s: 0 of 3 finished, 3 interrupted by shutdown, "
        r"2 of them to be continued on another worker$",
        capsys.readouterr().out,
        re.MULTILINE,
    )


def test_a_worker_that_may_not_be_deleted_ends_the_drain_with_1(
    open_worker: OpenWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that a script that goes on with ``&&`` does not."""
    engine = ScriptedEngine(is_confirming=False)
    with open_worker(engine) as worker:
        worker.open()
        call = worker.ask(wire_request())
        worker.until(lambda: engine.live)
        reader = threading.Thread(target=call.read_to_end)
        reader.start()
        with system_server(worker) as url:
            assert control_command("drain", ["--url", url, "--timeout", "0"]) == 1
        reader.join()
        assert "drained: 0 live, 1 in the engine; NOT safe to delete" in capsys.readouterr().out
        worker.finish(1)
