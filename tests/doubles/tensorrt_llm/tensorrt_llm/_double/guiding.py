"""A constraint of the library, made into one of the engine behind the double."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from protocols.engine import Engine
from protocols.errors import RequestError
from protocols.spec import GenerationSpec, Guided, GuidedKind
from tensorrt_llm._double.late import Late
from tensorrt_llm._double.wire import Settings
from tensorrt_llm.bindings.executor import GuideType
from tensorrt_llm.sampling_params import SamplingParams

_KINDS = {
    GuideType.JSON: GuidedKind.JSON,
    GuideType.JSON_SCHEMA: GuidedKind.JSON,
    GuideType.REGEX: GuidedKind.REGEX,
    GuideType.EBNF_GRAMMAR: GuidedKind.GRAMMAR,
    GuideType.STRUCTURAL_TAG: GuidedKind.STRUCTURAL_TAG,
}


def is_guided(sampling: SamplingParams, settings: Settings) -> bool:
    """Without a back-end a constraint is passed over without a word: the answer is free text."""
    return settings.guided_backend is not None and sampling._get_guided_decoding_params() is not None


async def guided(
    spec: GenerationSpec, sampling: SamplingParams, engine: Engine, backend: str | None
) -> GenerationSpec:
    """The spec with its constraint compiled. Raises Late for one that makes no sense."""
    guide = sampling._get_guided_decoding_params()
    assert guide is not None
    if guide.guide_type is GuideType.STRUCTURAL_TAG and backend != "xgrammar":
        raise Late(f"structural_tag is not supported by {backend}")
    if engine.preparer is None:
        raise Late("the engine of the double cannot do guided decoding without a model")
    constraint: Any = {"type": "object"} if guide.guide is None else guide.guide
    kind = _KINDS[guide.guide_type]
    if guide.guide is not None and kind in (GuidedKind.JSON, GuidedKind.STRUCTURAL_TAG):
        try:
            constraint = json.loads(guide.guide)
        except ValueError as exc:
            raise Late(f"Guided decoding error: the text is not JSON ({type(exc).__name__})") from exc
    asked = GenerationSpec(
        prompt=spec.prompt, stop=spec.stop, guided=Guided(kind=kind, constraint=constraint)
    )
    try:
        ready = await engine.preparer.prepare(asked)
    except RequestError as exc:
        raise Late(f"Guided decoding error: {exc}") from exc
    return msgspec.structs.replace(spec, guided=ready.guided)
