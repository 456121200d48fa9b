"""The rows of the dashboard, from what clients see down to the process."""

from __future__ import annotations

from tools.observability.rows.actors import ACTORS
from tools.observability.rows.engine import ENGINE
from tools.observability.rows.lifecycle import LIFECYCLE
from tools.observability.rows.overview import OVERVIEW
from tools.observability.rows.process import PROCESS
from tools.observability.rows.requests import REQUESTS

ROWS = (OVERVIEW, REQUESTS, ACTORS, ENGINE, LIFECYCLE, PROCESS)
