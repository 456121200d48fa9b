"""The file of NATS: a request as large as a worker may be given goes through."""

from __future__ import annotations

import json
import re
from math import ceil

from actors.engines.trtllm.roles import handoff_fields
from service.options.kinds import Integer
from service.options.tables import BY_NAME
from tests.deploy.compose_files import FOLDER

# The ids of the largest vocabularies have six digits.
LONG_ID = 262_143
# What stands beside the tokens and the hand-off: sampling, stops, ids, routing.
REST_BYTES = 64 * 1024


def test_the_longest_request_fits_into_one_message() -> None:
    """A prompt as long as a step can be, as JSON, with the largest hand-off: NATS refuses what is larger."""
    kind = BY_NAME["max_num_tokens"].kind
    assert isinstance(kind, Integer)
    prompt_bytes = kind.maximum * len(f"{json.dumps(LONG_ID)},")
    handed_over_bytes = ceil(handoff_fields._MOST_STATE_BYTES / 3) * 4
    said = re.search(r"^max_payload: (\d+)$", (FOLDER / "nats-server.conf").read_text("utf-8"), re.MULTILINE)
    assert said is not None
    assert int(said[1]) >= prompt_bytes + handed_over_bytes + REST_BYTES
    # The server's own bound.
    assert int(said[1]) <= 64 << 20
