"""From a panel to the traces behind it.

The framework's page has no exemplars, so a point of a graph names no trace. A link searches instead: for the
spans of this service that would have raised the point, within the time that the dashboard shows.

The service is a pattern, as every shipped variant has a name of its own. Grafana puts a variable into a link
with its plus signs as they are, and they are read as blanks there: the default has none.

Tempo compares like with like: a whole number never finds an attribute that is a fraction (its issue 4332), so
thresholds of milliseconds have a point.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from urllib.parse import quote

SERVICE = 'resource.service.name =~ "${service}"'
_VARIABLE = re.compile(r"(\$\{\w+\})")


@dataclass(frozen=True, slots=True)
class TraceSearch:
    """A link's title, and the conditions of TraceQL beside the service's name."""

    title: str
    conditions: str

    @property
    def query(self) -> str:
        """In TraceQL."""
        return f"{{ {SERVICE} && {self.conditions} }}"

    def url(self) -> str:
        """Of Grafana's Explore. Variables stay as they are: Grafana fills them in when it is followed."""
        source = "${tempo}"
        search = {
            "refId": "A",
            "datasource": {"type": "tempo", "uid": source},
            "queryType": "traceql",
            "query": self.query,
            "limit": 20,
            "tableType": "traces",
        }
        span = {"from": "${__from}", "to": "${__to}"}
        panes = {"traces": {"datasource": source, "queries": [search], "range": span}}
        return f"/explore?schemaVersion=1&panes={_quoted(json.dumps(panes, separators=(',', ':')))}"


def _quoted(text: str) -> str:
    parts = _VARIABLE.split(text)
    return "".join(part if _VARIABLE.fullmatch(part) else quote(part, safe="") for part in parts)


SLOW_FIRST_TOKEN = TraceSearch("Traces: first token after 1 s", 'name = "actor.execute" && duration > 1s')
LONG_WAIT = TraceSearch(
    "Traces: more than 1 s for a place", 'name = "actor.execute" && span.actor.waiting_ms > 1000.0'
)
SLOW_RESOLVE = TraceSearch("Traces: options that took 100 ms", 'name = "actor.resolve" && duration > 100ms')
SLOW_TOKENS = TraceSearch(
    "Traces: more than 0.1 s for a token", 'name = "actor.stream" && span.actor.itl_mean_ms > 100.0'
)
LONG_ANSWER = TraceSearch("Traces: streams of 30 s", 'name = "actor.stream" && duration > 30s')
FAILED = TraceSearch("Traces: failed", 'span.actor.outcome = "failed"')
INTERRUPTED = TraceSearch("Traces: interrupted", 'span.actor.outcome = "interrupted"')
PREEMPTED = TraceSearch("Traces: lost their memory", "span.actor.preemptions > 0")
DRAINS = TraceSearch("Traces: drains", 'name = "actor.drain"')
LATE_ABORTS = TraceSearch("Traces: aborts not confirmed", 'span.actor.abort.result = "timed_out"')
