"""``make compat``: contract, shutdown and migration on the newest ai-dynamo this worker accepts.

Exit code: pytest's. Further words are pytest's too: ``make compat ARGS="-k signals -x"``.
"""

from __future__ import annotations

import subprocess
import sys
import time

from tests.compat.environment import VERSION, prepare
from tests.e2e.stacks import ROOT

# What depends on the framework: its objects, its order of calls, its frontend and its shutdown.
_CONTRACT = (
    "tests/service/test_framework.py",
    "tests/service/test_control_drain.py",
    "tests/service/test_control_status.py",
    "tests/service/test_controls.py",
    "tests/service/test_death_path.py",
    "tests/service/test_discovery.py",
    "tests/service/test_exit_codes.py",
    "tests/service/test_facade_answers.py",
    "tests/service/test_facade_cancel.py",
    "tests/service/test_facade_drain.py",
    "tests/service/test_facade_errors.py",
    "tests/service/test_facade_lets_go.py",
    "tests/service/test_facade_lifecycle.py",
    "tests/service/test_kv_publishing.py",
    "tests/service/test_maintenance.py",
    "tests/service/test_notify_following.py",
    "tests/service/test_readers.py",
    "tests/service/test_stop_signals.py",
    "tests/compat/test_structural_tags.py",
)
_PROCESSES = (
    "tests/e2e/test_serving.py",
    "tests/e2e/test_signals.py",
    "tests/e2e/test_errors.py",
    "tests/e2e/test_metrics.py",
    "tests/e2e/test_notify.py",
    "tests/e2e/test_traces.py",
    "tests/e2e/test_etcd_nats.py",
    "tests/compat/test_mixed_versions.py",
    "tests/faults/test_sigkill.py",
    "tests/faults/test_moments.py",
    "--moments=4",
)


def main(words: list[str]) -> int:
    """Prepare, run, say what came of it."""
    started_s = time.monotonic()
    python = prepare()
    pytest = [str(python), "-m", "pytest", "-q", "--durations=5", *_CONTRACT, *_PROCESSES, *words]
    code = subprocess.run(pytest, cwd=ROOT, check=False).returncode
    print(f"compat: ai-dynamo {VERSION}, exit code {code}, {time.monotonic() - started_s:.0f} s", flush=True)
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
