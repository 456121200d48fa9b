"""``--engine``: a broken driver never becomes a slow worker."""

from __future__ import annotations

import pytest

from service.options import EngineChoiceError, EngineFacts, NoGpuError, choose_engine
from service.options.engine_choice import expected_engine
from tests.service.options.world import TORCH_ONLY

_NOTHING = EngineFacts(tensorrt_installed=False, torch_installed=False, gpus=0)
_TENSORRT = EngineFacts(tensorrt_installed=True, torch_installed=True, gpus=1)
_NO_GPU = EngineFacts(tensorrt_installed=True, torch_installed=True, gpus=0)
_BROKEN = EngineFacts(
    tensorrt_installed=True, torch_installed=True, gpus=1, tensorrt_problem="libnvinfer.so.10 is missing"
)


def test_auto_takes_torch_where_nothing_speaks_for_tensorrt() -> None:
    """A laptop."""
    assert choose_engine("auto", TORCH_ONLY).engine == "torch"


def test_auto_never_falls_back_when_tensorrt_options_were_given() -> None:
    """The options are named, and the way out."""
    with pytest.raises(
        EngineChoiceError, match=r"--tensor-parallel-size: asks for TensorRT-LLM.*--engine torch"
    ):
        choose_engine("auto", TORCH_ONLY, ["--tensor-parallel-size"])


@pytest.mark.parametrize("requested", ["auto", "trtllm"])
@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (_NO_GPU, "no GPU is visible"),
        (_BROKEN, "libnvinfer.so.10 is missing"),
    ],
)
def test_an_installed_tensorrt_that_cannot_run_stops_the_start(
    requested: str, facts: EngineFacts, why: str
) -> None:
    """Each reason names ``--engine torch``."""
    with pytest.raises(EngineChoiceError, match=rf"{why}.*--engine torch"):
        choose_engine(requested, facts)


@pytest.mark.parametrize("requested", ["auto", "trtllm"])
def test_a_missing_gpu_is_told_from_a_wrong_configuration(requested: str) -> None:
    """It may come with its driver, and no configuration has to change for that."""
    with pytest.raises(NoGpuError):
        choose_engine(requested, _NO_GPU)
    with pytest.raises(EngineChoiceError) as broken:
        choose_engine(requested, _BROKEN)
    assert not isinstance(broken.value, NoGpuError)


@pytest.mark.parametrize("requested", ["auto", "trtllm"])
def test_an_installed_tensorrt_with_a_gpu_is_driven(requested: str) -> None:
    """Without being asked for, too."""
    assert choose_engine(requested, _TENSORRT).engine == "trtllm"


@pytest.mark.parametrize(
    ("requested", "facts", "options", "expected"),
    [
        ("auto", TORCH_ONLY, [], "torch"),
        ("auto", TORCH_ONLY, ["--tensor-parallel-size"], "trtllm"),
        ("auto", _BROKEN, [], "trtllm"),
        ("synthetic", _TENSORRT, ["--tensor-parallel-size"], "synthetic"),
    ],
)
def test_a_configuration_is_read_for_the_engine_it_means(
    requested: str, facts: EngineFacts, options: list[str], expected: str
) -> None:
    """Also where that engine cannot run: the choice says so then, not a list of strange refusals."""
    assert expected_engine(requested, facts, options) == expected


def test_a_missing_tensorrt_cannot_be_asked_for() -> None:
    """``--engine trtllm`` without the distribution."""
    with pytest.raises(EngineChoiceError, match="tensorrt-llm is not installed"):
        choose_engine("trtllm", TORCH_ONLY)


@pytest.mark.parametrize("facts", [TORCH_ONLY, _TENSORRT, _NO_GPU, _BROKEN])
def test_torch_can_always_be_asked_for(facts: EngineFacts) -> None:
    """Whatever else is installed, and whatever options were given."""
    assert choose_engine("torch", facts, ["--tensor-parallel-size"]).engine == "torch"


@pytest.mark.parametrize("requested", ["auto", "torch"])
def test_without_torch_the_way_out_is_named(requested: str) -> None:
    """The synthetic engine needs nothing."""
    with pytest.raises(EngineChoiceError, match="--engine synthetic"):
        choose_engine(requested, _NOTHING)
    assert choose_engine("synthetic", _NOTHING).engine == "synthetic"


def test_the_choice_explains_itself() -> None:
    """One line at the start says which engine and why."""
    assert choose_engine("auto", TORCH_ONLY).reason == "tensorrt-llm is not installed"
    assert choose_engine("torch", TORCH_ONLY).reason == "asked for with --engine torch"
