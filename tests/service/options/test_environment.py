"""Variables: booleans, old names, near misses, strangers."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from service.options.environment import read_environment
from service.options.errors import Complaints
from service.options.known_names import FRAMEWORK_VARIABLES
from service.options.tables import OPTIONS
from tests.service.options.world import load, refused

_OUR_NAMES = {name for option in OPTIONS for name in option.envs() if name.startswith("DYN_ACTOR_")}
_REST = st.text(st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZ_"), min_size=1, max_size=30)


@pytest.mark.parametrize("word", ["true", "1", "yes", "on", "True", "ON"])
def test_true_words(word: str) -> None:
    """Variables take upstream's words for true."""
    assert load(env={"DYN_ACTOR_TRUST_REMOTE_CODE": word}).model.trust_remote_code


@pytest.mark.parametrize("word", ["false", "0", "no", "off", "OFF"])
def test_false_words(word: str) -> None:
    """Variables take upstream's words for false."""
    env = {"DYN_EXCLUDE_TOOLS_WHEN_TOOL_CHOICE_NONE": word}
    assert not load(env=env).requests.exclude_tools_when_tool_choice_none


@pytest.mark.parametrize("word", ["", "maybe", "2", "enabled"])
def test_any_other_word_is_refused_by_name(word: str) -> None:
    """Upstream reads any other word as false; here it stops the start."""
    line = refused(env={"DYN_ENABLE_STRUCTURAL_TAG": word})
    assert line == f"DYN_ENABLE_STRUCTURAL_TAG: value {word!r}: allowed: true/1/yes/on or false/0/no/off"


@given(_REST)
def test_an_unknown_variable_of_ours_never_passes(rest: str) -> None:
    """Whatever begins with DYN_ACTOR_ is known or stops the start, with a name where one is near."""
    name = f"DYN_ACTOR_{rest}"
    assume(name not in _OUR_NAMES)
    start, meant = refused(env={name: "1"}).split("; ", maxsplit=1)
    assert start == f"{name}: unknown variable"
    assert meant == "--help names all of them" or meant.removeprefix("the nearest is ") in _OUR_NAMES


def test_what_all_variables_begin_with_makes_none_of_them_alike() -> None:
    """Half of the words of DYN_ACTOR_SEED are in each of them."""
    assert refused(env={"DYN_ACTOR_QUUX": "1"}).endswith("; --help names all of them")
    assert refused(env={"DYN_ACTOR_SEDE": "1"}).endswith("; the nearest is DYN_ACTOR_SEED")
    (warning,) = load(env={"DYN_TRTLLM_QUUX": "1"}).warnings
    assert warning == "DYN_TRTLLM_QUUX is not known and has no effect here"


def test_a_near_miss_of_an_upstream_variable_is_warned_about() -> None:
    """Field report S15: DYN_TRTLLM_MAX_BATCH_SIZ=8 must not be ignored silently."""
    wrong, right = "DYN_TRTLLM_MAX_BATCH_SIZ", "DYN_TRTLLM_MAX_BATCH_SIZE"
    settings = load(env={wrong: "8"})
    assert settings.engine.max_num_seqs == 64
    assert settings.warnings == (f"{wrong} is not known and has no effect here; the nearest is {right}",)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("DYN_SYSTEM_PROT", "DYN_SYSTEM_PORT"),
        ("DYN_DISCOVERY_BACKENDS", "DYN_DISCOVERY_BACKEND"),
        ("DYN_WORKER_GRACEFULL_SHUTDOWN_TIMEOUT", "DYN_WORKER_GRACEFUL_SHUTDOWN_TIMEOUT"),
        ("DYN_TRTLLM_ENDPOINT_TYPES_OF_MINE", ""),
    ],
)
def test_other_near_misses_are_warned_about(wrong: str, right: str) -> None:
    """Also for variables of the framework; unknown DYN_TRTLLM_ names are warned about in any case."""
    (warning,) = load(env={wrong: "file"}).warnings
    assert warning.startswith(f"{wrong} is not known")
    assert right in warning


@pytest.mark.parametrize(
    "name",
    [
        *sorted(FRAMEWORK_VARIABLES - {"DYN_DYNAMO_REQUEST_QUEUE_LIMIT"}),
        "DYN_VLLM_ENABLE_MULTIMODAL",
        "DYN_SGL_FRONTEND_DECODING",
        "DYN_HTTP_BODY_LIMIT_MB",
        "DYN_ENABLE_ANTHROPIC_API",
        "DYN_OMNI_STAGE_ID",
        "HOME",
    ],
)
def test_variables_of_others_are_left_alone(name: str) -> None:
    """What belongs to the framework or to another component is not commented on."""
    complaints = Complaints()
    read_environment({name: "1"}, complaints)
    assert complaints.problems == []
    assert complaints.warnings == []


def test_an_old_variable_is_accepted_with_a_warning() -> None:
    """Upstream's alias of the KV event switch; false is the default and passes."""
    settings = load(env={"DYN_TRTLLM_PUBLISH_EVENTS_AND_METRICS": "false"})
    assert settings.warnings == (
        "DYN_TRTLLM_PUBLISH_EVENTS_AND_METRICS is an old spelling: use DYN_TRTLLM_PUBLISH_KV_EVENTS",
    )


def test_of_two_spellings_the_newer_wins_aloud() -> None:
    """The losing variable is named."""
    settings = load(env={"DYN_TRTLLM_SERVER_DISABLE_GC": "1", "TRTLLM_SERVER_DISABLE_GC": "0"})
    assert settings.runtime.disable_gc
    assert settings.warnings == (
        "TRTLLM_SERVER_DISABLE_GC has no effect: DYN_TRTLLM_SERVER_DISABLE_GC sets the same option and wins",
    )


def test_an_old_flag_is_accepted_with_a_warning() -> None:
    """Upstream's old spellings still work."""
    settings = load("--dyn-endpoint-types", "chat", "--no-publish-events-and-metrics")
    assert settings.runtime.endpoint_types == ("chat",)
    assert settings.warnings == (
        "--dyn-endpoint-types is an old spelling: use --endpoint-types",
        "--no-publish-events-and-metrics is an old spelling: use --publish-kv-events",
    )


def test_an_empty_text_means_not_set() -> None:
    """As upstream: an empty name is derived, an empty template is none."""
    settings = load(env={"DYN_TRTLLM_SERVED_MODEL_NAME": "", "DYN_CUSTOM_JINJA_TEMPLATE": ""})
    assert settings.model.served_model_name is None
    assert settings.requests.custom_jinja_template is None
