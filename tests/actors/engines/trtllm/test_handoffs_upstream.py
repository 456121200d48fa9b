"""A prefill worker of ours serves with a decode worker of Dynamo's own, and the other way round."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import cache
from importlib import import_module
from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from actors.engines.trtllm.roles.handoffs import encode
from tests.actors.engines.trtllm.handoff_world import handoff_library, handoffs, through_json
from tests.doubles.trtllm_site import double_on_path


@cache
def upstreams_codec() -> ModuleType:
    """Dynamo's own, with the double under it; nothing that met the double can be imported by others."""
    before = set(sys.modules)
    with double_on_path():
        found = import_module("dynamo.trtllm.utils.disagg_utils")
    for name in set(sys.modules) - before:
        if name.startswith("dynamo.trtllm"):
            del sys.modules[name]
    return found


@given(data=st.data())
def test_upstreams_decode_worker_reads_ours(data: st.DataObject) -> None:
    """Dynamo's own codec makes of our JSON what the prefill engine had returned."""
    upstream = upstreams_codec()
    params = data.draw(handoffs(handoff_library()))
    wire = through_json(encode(params))

    upstream.DisaggregatedParamsCodec.deserialize_first_gen_log_probs(wire)
    found = upstream.DisaggregatedParamsCodec.decode(upstream.DisaggregatedParams(**wire))

    assert asdict(found) == asdict(params)


@given(data=st.data())
def test_our_decode_worker_reads_upstreams(data: st.DataObject) -> None:
    """What Dynamo's own prefill worker writes is the same JSON as ours."""
    upstream = upstreams_codec()
    params = data.draw(handoffs(handoff_library()))

    theirs = asdict(upstream.DisaggregatedParamsCodec.encode(params))
    upstream.DisaggregatedParamsCodec.serialize_first_gen_log_probs(theirs)

    assert through_json(theirs) == through_json(encode(params))
