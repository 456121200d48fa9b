"""Logits processors for TensorRT-LLM: found again in another process, and beside what else it can do."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from service.options import ConfigError, exit_code_of
from service.options.settings import ProcessorImport
from service.processors import hello
from service.processors.check import check_processors
from service.processors.imports import load_factories, load_processors
from tests.service.options.world import load, with_tensorrt

if TYPE_CHECKING:
    from pathlib import Path

    from service.options import Settings

HOME = "tests.service.imported_processors"
GOOD = ("--logits-processor", f"mine={HOME}:Banning.softly")
HOOK = {"DYN_ENABLE_TEST_LOGITS_PROCESSOR": "1"}
DRAFTS = ("--override-engine-args", '{"speculative_config": {"decoding_type": "MTP"}}')
PARTS = ("--trtllm.enable_chunked_prefill", "true")
NOT_AHEAD = ("--trtllm.disable_overlap_scheduler", "true")
PREFILL = ("--disaggregation-mode", "prefill")

# What an operator may write that works in one process only.
LOCAL = {
    "lambda": """
make = lambda: print
""",
    "inner": """
def outer():
    class Inner:
        def __call__(self, ids, row): ...
    return Inner

make = outer()
""",
    "bound": """
import threading

class Locked:
    def __init__(self):
        self.lock = threading.Lock()
    def make(self):
        return print

make = Locked().make
""",
}


def trtllm(*words: str, env: dict[str, str] | None = None) -> Settings:
    return load("--engine", "trtllm", *words, env=env, installed=with_tensorrt())


def refusal(settings: Settings) -> str:
    with pytest.raises(ConfigError) as caught:
        load_processors(settings, "trtllm")
    return str(caught.value)


@pytest.mark.parametrize("factory", ["Banning", "Banning.softly"])
def test_what_another_process_can_find_is_taken(factory: str) -> None:
    """Classes and their methods, with the operator's options."""
    one = ProcessorImport(name="mine", factory=f"{HOME}:{factory}", options={"token_ids": [5]})
    made = load_factories([one], "--x", must_travel=True)["mine"]()
    assert made.token_ids == [5, 0]


@pytest.mark.parametrize("kind", LOCAL)
def test_what_it_cannot_find_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """With the option, the value and the reason, before anything loads; engine torch takes it."""
    (tmp_path / f"local_{kind}.py").write_text(LOCAL[kind], encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    one = ProcessorImport(name="mine", factory=f"local_{kind}:make", options={})
    assert set(load_factories([one], "DYN_X")) == {"mine"}
    with pytest.raises(ConfigError, match=f"DYN_X: value 'mine=local_{kind}:make'") as caught:
        load_factories([one], "DYN_X", must_travel=True)
    assert "logits processor 'mine' has to be found again in the engine's own process" in str(caught.value)
    monkeypatch.delitem(sys.modules, f"local_{kind}")


def test_all_that_is_wrong_is_told_at_once() -> None:
    """What cannot be imported, and what the engine was told besides."""
    text = refusal(trtllm("--logits-processor", f"mine={HOME}:NoSuch", *PARTS))
    assert len(text.splitlines()) == 2
    assert "has no 'NoSuch'" in text


@pytest.mark.parametrize("hook", [False, True])
def test_drafted_tokens_are_refused_by_name(hook: bool) -> None:
    """The engine chooses tokens that no processor was asked about."""
    text = refusal(trtllm(*DRAFTS, env=HOOK) if hook else trtllm(*DRAFTS, *GOOD))
    assert text.startswith("--override-engine-args: speculative_config: TensorRT-LLM asks")


def test_parts_of_prompts_go_with_an_engine_that_does_not_work_ahead() -> None:
    """Otherwise nobody could tell a part from a token."""
    text = refusal(trtllm(*GOOD, *PARTS))
    assert text.startswith("--trtllm.enable_chunked_prefill: value true: logits processors could not tell")
    assert set(load_processors(trtllm(*GOOD, *PARTS, *NOT_AHEAD), "trtllm")) == {"mine"}


@pytest.mark.parametrize("words", [(), PARTS, DRAFTS])
def test_without_processors_everything_goes(words: tuple[str, ...]) -> None:
    """Nothing is refused for the sake of what nobody uses."""
    assert load_processors(trtllm(*words), "trtllm") == {}


def test_a_prefill_worker_takes_what_goes_with_none() -> None:
    """It knows the processors, so that requests may name them, and runs none."""
    settings = trtllm(*GOOD, *PARTS, *PREFILL)
    assert set(load_processors(settings, "trtllm")) == {"mine"}
    levels = [found.level for found in check_processors(settings, with_tensorrt())]
    assert levels == ["ok"]


@pytest.mark.parametrize(("words", "levels"), [((), ["ok", "warning"]), (NOT_AHEAD, ["ok"])])
def test_the_check_says_what_processors_are_shown(words: tuple[str, ...], levels: list[str]) -> None:
    """An engine that works ahead shows ids without the newest one."""
    found = list(check_processors(trtllm(*GOOD, *words), with_tensorrt()))
    assert [each.level for each in found] == levels
    assert exit_code_of(found) == 0
    if len(found) > 1:
        assert "lack the newest one" in found[1].text


@pytest.mark.parametrize(
    ("words", "env", "is_wanted"),
    [
        ((), {}, False),
        ((), HOOK, True),
        (("--disaggregation-mode", "decode"), HOOK, True),
        (PREFILL, HOOK, False),
        (PREFILL, {}, False),
    ],
)
def test_the_hook_is_for_workers_that_answer(
    words: tuple[str, ...], env: dict[str, str], is_wanted: bool
) -> None:
    """A prefill has no tokenizer, and needs none; nor does anybody without the hook."""
    settings = trtllm(*words, env=env)
    assert hello.is_wanted(settings) is is_wanted
    assert settings.engine_arguments is not None
    assert settings.engine_arguments.values["skip_tokenizer_init"] is not is_wanted
