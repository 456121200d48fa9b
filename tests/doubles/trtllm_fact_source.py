"""From a fact sheet of TensorRT-LLM's API to the facts that are committed here, and a comparison of the two.

``python -m tests.doubles.trtllm_fact_source SHEET`` prints what differs and ends with 1 if anything does;
with ``--write`` it writes the committed facts anew. The sheet is a JSON file of signatures as they were
read in the library's sources; it is not part of this repository.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.doubles.trtllm_facts import ANY_KEY, EVENTS, FACTS, RELEASE

# The sheet has these as of a somewhat older revision. They were compared with the release's own source, field
# by field and in its order: there the double must have these and no others.
_READ_AT_RELEASE = frozenset(
    {
        "KvCacheConfig", "SchedulerConfig", "DynamicBatchConfig", "CacheTransceiverConfig", "CudaGraphConfig",
        "AttentionDpConfig", "KvCacheConnectorConfig", "SleepConfig",
    }
)  # fmt: skip
# What the release's own source has otherwise than the sheet: class -> fields, None for one that is gone.
OVERRULED: dict[str, dict[str, dict[str, Any] | None]] = {
    "KvCacheConfig": {"use_kv_cache_manager_v2": {"default": "auto"}},
    "CacheTransceiverConfig": {"transceiver_runtime": {"default": "auto"}},
    "KvCacheConnectorConfig": {"server_url": {"default": None}},
    "TorchLlmArgs": {"disable_flashinfer_sampling": None, "disable_mm_encoder": {"default": False}},
}

# Not used here: what needs Ray, a second name of another entry, what only encoders and other executors have.
_LEFT_OUT = frozenset({"AsyncLLM", "GenerationResult"})
_UNUSED = frozenset({"encode", "get_data_transceiver_state", "collective_rpc"})
_REQUIRED = "<required>"
_UNKNOWN = "?"
_TOP = "top_level"
_SAID_ABOUT = frozenset({"container", "provenance"})


def facts_of(sheet: dict[str, Any]) -> dict[str, Any]:
    """Return the sheet's content in the structure of the committed facts."""
    enums = {
        name: enum for name, enum in sheet["enums"].items() if isinstance(enum, dict) and "import" in enum
    }
    classes = {name: cls for name, cls in sheet["classes"].items() if name not in _LEFT_OUT}
    return {
        "release": RELEASE,
        "classes": {name: _as_released(name, _class_facts(cls)) for name, cls in classes.items()},
        "functions": {name: _function_facts(function) for name, function in sheet["functions"].items()},
        "enums": {name: _enum_facts(enum) for name, enum in enums.items() if "members" in enum},
        "metrics": sorted(_metric_names(sheet["classes"]["MetricsCollector"]["metrics"])),
        "row": _shape(sheet["events"]["iteration_stats"]),
        "events": {kind: _shape(sheet["events"]["kv_cache"][kind]) for kind in EVENTS},
    }


def _as_released(name: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Overrule what the sheet says of a class: fields that it lacks come last."""
    if name in _READ_AT_RELEASE:
        facts["exact"] = True
    if name not in OVERRULED:
        return facts
    known = {field["name"]: field for field in facts["fields"]}
    for field, value in OVERRULED[name].items():
        if value is None:
            known.pop(field, None)
        else:
            known[field] = {"name": field} | value
    return facts | {"fields": [*known.values()]}


def _class_facts(cls: dict[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {"at": _places(cls), "exact": _is_exact(cls)}
    if "fields" in cls:
        facts["keyword_only"] = cls.get("field_kind") == "keyword_only"
        facts["slots"] = "slots" in cls.get("kind", "")
        facts["fields"] = [_value_facts(field) for field in cls["fields"]]
    if "private_noninit_fields" in cls or "hidden_fields" in cls:
        facts["outside_init"] = [*cls.get("private_noninit_fields", ()), *cls.get("hidden_fields", ())]
    if "private_init_fields" in cls:
        facts["also_in_init"] = cls["private_init_fields"]
    if all("Error" in base for base in cls.get("bases", ("",))):
        facts["bases"] = cls["bases"]
    if cls.get("properties"):
        facts["properties"] = [*cls["properties"]]
    if isinstance(cls.get("methods"), dict):
        facts["methods"] = {
            name: _function_facts({"provenance": cls["provenance"], **method}, with_place=False)
            for name, method in cls["methods"].items()
            if name not in _UNUSED
        }
    return facts


def _function_facts(function: dict[str, Any], with_place: bool = True) -> dict[str, Any]:
    parameters = [{**_value_facts(each), "kind": each["kind"]} for each in function["params"]]
    facts: dict[str, Any] = {"at": _places(function)} if with_place else {}
    return facts | {"exact": _is_exact(function), "async": bool(function["async"]), "parameters": parameters}


def _value_facts(value: dict[str, Any]) -> dict[str, Any]:
    """A name, and how it comes to a value by itself, if it does: a constant, or a call of something."""
    default = value["default"]
    if default == _REQUIRED:
        return {"name": value["name"]}
    if isinstance(default, str) and default.startswith("<"):
        return {"name": value["name"], "made_by": "a function" if ":" in default else default.strip("<>()")}
    return {"name": value["name"], "default": default}


def _enum_facts(enum: dict[str, Any]) -> dict[str, Any]:
    members = enum["members"]
    values = members if isinstance(members, dict) else dict.fromkeys(members, _UNKNOWN)
    known = {name: value for name, value in values.items() if value != _UNKNOWN}
    return {"at": _places(enum), "members": [*values], "values": known}


def _places(entry: dict[str, Any]) -> list[str]:
    """Import paths; those that nobody could verify are left out."""
    places = [entry["import"], entry.get("alias"), *entry.get("aliases", ())]
    return [place for place in places if place and "(" not in place]


def _is_exact(entry: dict[str, Any]) -> bool:
    return bool(entry["provenance"]["exact_rc22"])


def _metric_names(metrics: dict[str, list[str]]) -> Iterator[str]:
    for names in metrics.values():
        yield from names


def _shape(described: Any) -> Any:
    """Return the keys of a described dictionary with the shapes below them; what is no container is null."""
    if isinstance(described, list):
        return [_shape(each) for each in described]
    if not isinstance(described, dict):
        return None
    inner: dict[str, Any] = {key: _shape(value) for key, value in described.items() if key not in _SAID_ABOUT}
    return inner.pop(_TOP, {}) | {
        ANY_KEY if key.startswith("<") else key: value for key, value in inner.items()
    }


def differences(here: object, there: object, path: str = "") -> Iterator[str]:
    """Yield one line for each place where two pieces of JSON differ."""
    if isinstance(here, dict) and isinstance(there, dict):
        for key in sorted(here.keys() | there.keys()):
            yield from differences(here.get(key), there.get(key), f"{path}/{key}")
    elif here != there:
        yield f"{path}: committed {here!r}, sheet {there!r}"


def written(facts: object, depth: int = 0) -> str:
    """Return JSON with one field, parameter or short list on a line."""
    flat = json.dumps(facts)
    if not isinstance(facts, dict | list) or (len(flat) < 90 and depth > 2):
        return flat
    inner = "\n" + " " * (depth + 1)
    if isinstance(facts, dict):
        items = [f"{json.dumps(key)}: {written(value, depth + 1)}" for key, value in facts.items()]
        return "{" + inner + f",{inner}".join(items) + "\n" + " " * depth + "}"
    return (
        "[" + inner + f",{inner}".join(written(each, depth + 1) for each in facts) + "\n" + " " * depth + "]"
    )


def main() -> int:
    """Compare, or write. 1 when something differs."""
    parser = argparse.ArgumentParser(
        prog="trtllm_fact_source", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("sheet", type=Path)
    parser.add_argument("--write", action="store_true", help="write the committed facts anew")
    options = parser.parse_args()
    facts = facts_of(json.loads(options.sheet.read_text(encoding="utf-8")))
    if options.write:
        FACTS.write_text(written(facts) + "\n", encoding="utf-8")
        return 0
    found = list(differences(json.loads(FACTS.read_text(encoding="utf-8")), facts))
    print("\n".join(found) if found else "the committed facts are those of the sheet")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
