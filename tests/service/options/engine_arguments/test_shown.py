"""What people see of the arguments: every value with who gave it, once, and no secret."""

from __future__ import annotations

import json

from service.options import Finding, check_settings, config_json, exit_code_of, help_text, print_config
from tests.service.options.world import load, with_tensorrt

_TRTLLM = ("--engine", "trtllm")
_SECRET = '--override-engine-args={"env_overrides": {"HF_TOKEN": "hf_secret"}}'


def _findings(*words: str) -> list[Finding]:
    facts = with_tensorrt()
    return check_settings(load(*_TRTLLM, *words, installed=facts), facts)


def test_the_resolved_configuration_ends_with_the_arguments() -> None:
    """In the same columns: path, value, source."""
    text = print_config(load(*_TRTLLM, "--max-batch-size", "8", "--trtllm.kv_cache_config.dtype", "fp8"))
    head, arguments = text.split("\nTensorRT-LLM is built with:\n")
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in arguments.splitlines()}
    assert rows["max_batch_size"] == ["8", "--max-batch-size"]
    assert rows["kv_cache_config.dtype"] == ['"fp8"', "--trtllm.kv_cache_config.dtype"]
    assert rows["max_num_tokens"] == ["8192", "default"]
    assert "--max-batch-size" in head
    assert "TensorRT-LLM is built with" not in print_config(load("--engine", "torch"))


def test_the_check_shows_all_arguments_in_one_line() -> None:
    """Once, as JSON that could be given again."""
    (finding,) = [
        found for found in _findings("--max-batch-size", "8") if found.subject == "engine arguments"
    ]
    assert finding.level == "ok"
    assert json.loads(finding.text)["max_batch_size"] == 8


def test_the_dump_holds_the_arguments() -> None:
    """Beside the options."""
    dumped = json.loads(config_json(load(*_TRTLLM)))
    assert dumped["engine_arguments"]["kv_cache_config"]["tokens_per_block"] == 32
    assert "engine_arguments" not in json.loads(config_json(load("--engine", "torch")))


def test_variables_of_the_engines_processes_are_masked() -> None:
    """Their names help, their values may be passwords."""
    settings = load(*_TRTLLM, _SECRET)
    assert settings.engine_arguments is not None
    assert settings.engine_arguments.values["env_overrides"] == {"HF_TOKEN": "hf_secret"}
    dotted = load(*_TRTLLM, "--trtllm.env_overrides.HF_TOKEN", "hf_secret")
    twice = load(*_TRTLLM, "--trtllm.env_overrides.HF_TOKEN", "hf_secret", "--max-batch-size", "3")
    for found in (settings, dotted, twice):
        shown = print_config(found) + config_json(found) + "".join(found.warnings)
        shown += "".join(str(finding) for finding in check_settings(found, with_tensorrt()))
        assert "hf_secret" not in shown
        assert "HF_TOKEN" in shown


def test_a_connector_that_is_not_installed_is_found_by_the_check() -> None:
    """Before the model is loaded."""
    findings = _findings("--connector", "kvbm")
    assert exit_code_of(findings) == 2
    (error,) = [found for found in findings if found.subject == "connector"]
    assert error.text.startswith("--connector: value 'kvbm': the package kvbm is not installed")


def test_the_help_tells_engines_apart() -> None:
    """Another default, or an engine that has the option."""
    words = " ".join(help_text().split())
    assert "default: 64; trtllm: 2048" in words
    assert "default: 0.9 | engine: trtllm | allowed" in words


def test_values_are_shown_as_they_were_written() -> None:
    """A folder's name in any language, and not the numbers of its characters."""
    settings = load(*_TRTLLM, '--override-engine-args={"tokenizer": "/modèles/模型"}')
    assert "/modèles/模型" in print_config(settings)


def test_an_empty_object_is_shown_with_its_giver() -> None:
    """It is no default: without it the worker could not sleep."""
    text = print_config(load(*_TRTLLM, '--override-engine-args={"sleep_config": {}}'))
    (row,) = [line.split() for line in text.splitlines() if line.startswith("sleep_config")]
    assert row == ["sleep_config", "{}", "--override-engine-args"]
