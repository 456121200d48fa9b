"""Names and values that TensorRT-LLM, or this worker, has no use for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from service.options.engine_arguments.known_fields import (
    LLM_FIELDS,
    OF_ENCODERS,
    SECTIONS,
    VERSION,
    places_of,
)
from service.options.engine_arguments.unusable import RETIRED, UNTRIED, UNUSABLE, WITHOUT_EFFECT
from service.options.nearest import near
from service.options.tables import BY_NAME
from tests.service.options.engine_arguments.words import TRTLLM, with_value
from tests.service.options.world import load, refused, with_tensorrt

if TYPE_CHECKING:
    from pathlib import Path

_NAMES = st.from_regex(r"[a-z_]{1,20}", fullmatch=True)
_CLOSED = ["", *(path for path, section in SECTIONS.items() if not section.is_open)]


@given(st.sampled_from(_CLOSED), _NAMES)
def test_an_unknown_name_never_passes(section: str, name: str) -> None:
    """At every depth that is known, with the nearest name of the same place, or those that it may have."""
    known = SECTIONS[section].fields if section else LLM_FIELDS
    path = f"{section}.{name}" if section else name
    assume(name not in known and path not in UNUSABLE and path not in RETIRED and not places_of(name))
    assume(path not in BY_NAME)
    (line,) = [line for line in refused(*TRTLLM, with_value(path, 1)).splitlines() if "unknown key" in line]
    start, meant = line.split("; ")
    guess, others = near(name, known), f"allowed: {', '.join(sorted(known))}"
    assert start == f"--override-engine-args:{path}: unknown key"
    assert meant == (
        f"the nearest is {guess}" if guess else others if section else f"{VERSION} has none like it"
    )


@given(st.sampled_from(_CLOSED), st.sampled_from(_CLOSED), st.data())
def test_a_right_name_in_the_wrong_place_is_told_its_place(
    wrong: str, right: str, data: st.DataObject
) -> None:
    """Whatever is right there: the nearest name of the wrong place would be another thing."""
    name = data.draw(st.sampled_from(sorted(SECTIONS[right].fields if right else LLM_FIELDS)))
    assume(right != "sleep_config.restore_modes" and name not in OF_ENCODERS)
    path = f"{wrong}.{name}" if wrong else name
    known = SECTIONS[wrong].fields if wrong else LLM_FIELDS
    assume(name not in known and path not in UNUSABLE and path not in RETIRED)
    (line,) = [line for line in refused(*TRTLLM, with_value(path, 1)).splitlines() if "unknown key" in line]
    start, places = line.split(" here; its place is ")
    assert start == f"--override-engine-args:{path}: unknown key"
    assert (f"{right}.{name}" if right else name) in places.split(" or ")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("free_gpu_memory_fraction", "kv_cache_config.free_gpu_memory_fraction"),
        ("tokens_per_block", "kv_cache_config.tokens_per_block"),
        ("enable_block_reuse", "kv_cache_config.enable_block_reuse"),
        ("lora_dir", "lora_config.lora_dir"),
        ("waiting_queue_policy", "scheduler_config.waiting_queue_policy"),
        ("kv_cache_config.max_batch_size", "max_batch_size or cuda_graph_config.max_batch_size"),
        ("cache_transceiver_config.tokens_per_block", "kv_cache_config.tokens_per_block"),
    ],
)
def test_a_name_without_its_group_is_told_the_group(wrong: str, right: str) -> None:
    """The commonest slip: the names are in TensorRT-LLM's own pages, the groups are not."""
    line = f"--override-engine-args:{wrong}: unknown key here; its place is {right}"
    assert refused(*TRTLLM, with_value(wrong, 1)) == line


def test_a_memory_is_no_setting() -> None:
    """Where a setting is misspelt like one of them, the setting is meant."""
    assert refused(*TRTLLM, with_value("sampler", 1)).endswith("the nearest is sampler_type")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("kv_cache_confg", "kv_cache_config"),
        ("kv_cache_config.free_gpu_mem_fraction", "free_gpu_memory_fraction"),
        ("scheduler_config.dynamic_batch_config.enable_batch_tuning", "enable_batch_size_tuning"),
        ("cache_transceiver_config.max_tokens_in_bufer", "max_tokens_in_buffer"),
        ("max_num_token", "max_num_tokens"),
        ("sleep_config.restore_modes.kv_cach", "kv_cache"),
        ("prometheus_metrics_config.e2e_latency_buckets", "e2e_request_latency_buckets"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_right_one(wrong: str, right: str) -> None:
    """Field report S15, at several depths; a dotted flag is named alone, since it holds the path."""
    assert refused(*TRTLLM, with_value(wrong, {"x": 1})).endswith(f"unknown key; the nearest is {right}")
    assert refused(*TRTLLM, f"--trtllm.{wrong}.x", "1").startswith(f"--trtllm.{wrong}.x: unknown key")


@pytest.mark.parametrize(
    ("path", "flag"),
    [
        ("served_model_name", "--served-model-name"),
        ("kv_block_size", "--kv-block-size"),
        ("max_live", "--max-live"),
        ("lora_enabled", "DYN_LORA_ENABLED"),
    ],
)
def test_an_option_of_ours_in_an_engine_file_is_named(path: str, flag: str) -> None:
    """No argument is like it: it belongs beside the file."""
    line = refused(*TRTLLM, with_value(path, 1))
    assert line == f"--override-engine-args:{path}: is no argument of TensorRT-LLM; give {flag}"


@pytest.mark.parametrize("path", sorted(RETIRED))
def test_names_of_older_versions_have_a_sentence(path: str) -> None:
    """What to write instead, or that nothing is."""
    assert refused(*TRTLLM, with_value(path, 1)) == f"--override-engine-args:{path}: {RETIRED[path]}"


def test_another_version_decides_itself() -> None:
    """The table is of one version: with another one installed unknown and retired names only warn."""
    settings = load(
        *TRTLLM, with_value("build_config", {"x": 1}), installed=with_tensorrt("1.2.0"), facts=None
    )
    assert settings.engine_arguments is not None
    assert settings.engine_arguments.values["build_config"] == {"x": 1}
    (warning,) = settings.warnings
    assert warning.startswith("--override-engine-args:build_config: is gone")
    assert warning.endswith("(as of 1.3.0rc22; 1.2.0 is installed and decides)")
    refused(*TRTLLM, with_value("build_config", {"x": 1}), installed=with_tensorrt())


def test_open_objects_take_any_name() -> None:
    """Those whose fields are not known."""
    for path in ("moe_config.new", "speculative_config.a.b", "model_kwargs.x"):
        assert load(*TRTLLM, with_value(path, 1)).warnings == ()


def test_a_name_that_may_be_there_is_only_warned_about() -> None:
    """Where the fields were read of another revision; with the nearest all the same."""
    (warning,) = load(*TRTLLM, with_value("lora_config.max_rank", 1)).warnings
    assert warning == (
        "--override-engine-args:lora_config.max_rank: unknown key; the nearest is max_lora_rank "
        "(as far as known; TensorRT-LLM decides)"
    )


def test_an_encoder_that_is_left_out_is_not_one_alone() -> None:
    """The two names mean the opposite of each other: one is taken, the other refused."""
    assert load(*TRTLLM, with_value("disable_mm_encoder", True)).warnings == ()
    assert "this worker generates tokens" in refused(*TRTLLM, with_value("mm_encoder_only", True))


@pytest.mark.parametrize("value", ["Auto", "DUMMY", "dUmMy", 0, 1])
def test_a_load_format_is_read_as_tensorrt_does(value: object) -> None:
    """In any case, or by its number."""
    arguments = load(*TRTLLM, with_value("load_format", value)).engine_arguments
    assert arguments is not None
    assert arguments.value("load_format") == value


@pytest.mark.parametrize("word", ["Auto", "DUMMY"])
def test_so_is_the_flag(word: str) -> None:
    """Of what this worker loads; a number is none there."""
    arguments = load(*TRTLLM, "--load-format", word).engine_arguments
    assert arguments is not None
    assert arguments.value("load_format") == word.lower()
    assert "allowed: auto or dummy" in refused(*TRTLLM, "--load-format", "GMS")
    assert "allowed: auto or dummy" in refused(*TRTLLM, "--load-format", "0")


@pytest.mark.parametrize("value", [None, True, False, 2, 3, "Vision_Only", "0", 1.0])
def test_another_load_format_is_refused(value: object) -> None:
    """True is no number there, and null no format."""
    assert "allowed: auto or dummy" in refused(*TRTLLM, with_value("load_format", value))


@pytest.mark.parametrize("path", ["encode_only", "mm_encoder_only"])
def test_what_is_switched_off_in_quotes_is_off(path: str) -> None:
    """A template's "false" asks for nothing, a "true" for what this worker is not."""
    assert load(*TRTLLM, with_value(path, "false")).warnings == ()
    refused(*TRTLLM, with_value(path, "true"))


def test_the_engine_file_may_call_the_revision_as_trtllm_serve_does(tmp_path: Path) -> None:
    """In that file alone, and the right name wins with a warning; elsewhere it is told."""
    path = tmp_path / "engine.yaml"
    words = (*TRTLLM, "--extra-engine-args", str(path))
    path.write_text("hf_revision: v1", encoding="utf-8")
    settings = load(*words)
    assert settings.engine_arguments is not None
    assert settings.engine_arguments.value("revision") == "v1"
    assert settings.engine_arguments.value("hf_revision") is None
    assert settings.warnings == ()
    path.write_text("hf_revision: v1\nrevision: v2", encoding="utf-8")
    settings = load(*words)
    assert settings.engine_arguments is not None
    assert settings.engine_arguments.value("revision") == "v2"
    assert len(settings.warnings) == 1
    assert refused(*TRTLLM, with_value("hf_revision", "v1")).startswith(
        "--override-engine-args:hf_revision: is revision here"
    )


@pytest.mark.parametrize("path", sorted(UNUSABLE))
def test_what_this_worker_cannot_use_is_refused(path: str) -> None:
    """With the reason, whatever version is installed; values that ask for nothing pass."""
    for installed in (with_tensorrt(), with_tensorrt("1.4.0")):
        (line,) = refused(*TRTLLM, with_value(path, "gms"), installed=installed).splitlines()
        assert line == f"--override-engine-args:{path}: value 'gms': {UNUSABLE[path].why}"
    for value in UNUSABLE[path].accepts:
        assert load(*TRTLLM, with_value(path, value)).warnings == ()


@pytest.mark.parametrize("path", sorted(SECTIONS))
def test_objects_must_be_objects(path: str) -> None:
    """Another value is refused by name; null where it would mean nothing, too."""
    assert "must be an object" in refused(*TRTLLM, with_value(path, 3))
    assert "must be an object" in refused(*TRTLLM, with_value(path, [1]))
    if SECTIONS[path].may_be_null:
        load(*TRTLLM, with_value(path, None))
    else:
        assert "value null: must be an object" in refused(*TRTLLM, with_value(path, None))


@pytest.mark.parametrize("key", sorted(WITHOUT_EFFECT))
def test_what_has_no_effect_is_taken_out_and_named(key: str) -> None:
    """TensorRT-LLM is not even told."""
    settings = load(*TRTLLM, with_value(key, 4))
    assert settings.warnings == (f"--override-engine-args:{key} has no effect: {WITHOUT_EFFECT[key]}",)
    assert settings.engine_arguments is not None
    assert key not in dict(settings.engine_arguments.origins)


@pytest.mark.parametrize("key", sorted(UNTRIED))
def test_what_was_never_tried_is_passed_on_with_a_warning(key: str) -> None:
    """The operator may know better."""
    value = {"orchestrator_type": "ray"}.get(key, True)
    settings = load(*TRTLLM, with_value(key, value))
    assert settings.engine_arguments is not None
    assert settings.engine_arguments.values[key] == value
    assert len(settings.warnings) == 1
