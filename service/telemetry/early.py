"""The log before the framework's: from the first line of ours until ``Worker.run()`` begins.

Then the framework removes every handler of the root logger, this one included, and puts its own there:
at any time there is one writer, and the lines of both look alike.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from service.telemetry.dyn_log import NOTHING, DynLog
from service.telemetry.line_format import LineFormatter, target_of

if TYPE_CHECKING:
    from collections.abc import Mapping

# Of whom the operator must hear when something is wrong.
_ERRORS_OF = "actor.worker"


def install_early_handler(environ: Mapping[str, str]) -> None:
    """Write to stderr until the framework takes over. Where somebody writes already, do nothing."""
    root = logging.getLogger()
    if root.handlers:
        return
    text = environ.get("DYN_LOG")
    filters = DynLog(text)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(environ))
    handler.addFilter(lambda record: record.levelno >= filters.lowest(target_of(record)))
    root.addHandler(handler)
    root.setLevel(filters.lowest_of_all)
    if filters.lowest(_ERRORS_OF) == NOTHING:
        sys.stderr.write(
            f"dynamo-actor-worker: DYN_LOG={text!r} lets no line of this worker through, also no error; "
            "levels are off, error, warn, info, debug and trace, and any other word is a target\n"
        )
