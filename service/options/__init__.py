"""Command line, environment and configuration file of the worker.

`load_settings` turns them into `Settings`; the table of options is in ``tables/``. Nothing here imports the
framework: the caller brings `FrameworkFacts`.
"""

from __future__ import annotations

from service.options.budgets import BudgetError, DrainBudgets, OperatorTimes, plan_budgets
from service.options.check import Finding, check_settings, exit_code_of, refuse_missing_packages
from service.options.command_line import COMMANDS, split_command
from service.options.engine_choice import (
    EngineChoice,
    EngineChoiceError,
    EngineFacts,
    EngineName,
    NoGpuError,
    choose_engine,
)
from service.options.errors import ConfigError, Problem
from service.options.framework import FrameworkFacts
from service.options.load import load_settings
from service.options.machine import read_engine_facts
from service.options.settings import (
    EngineSettings,
    ModelSettings,
    RequestSettings,
    RuntimeSettings,
    Settings,
    StructuralTags,
    SyntheticSettings,
    TorchSettings,
)
from service.options.show import config_json, early_answer, findings_text, help_text, print_config
from service.options.values import Secret

__all__ = [
    "COMMANDS",
    "BudgetError",
    "ConfigError",
    "DrainBudgets",
    "EngineChoice",
    "EngineChoiceError",
    "EngineFacts",
    "EngineName",
    "EngineSettings",
    "Finding",
    "FrameworkFacts",
    "ModelSettings",
    "NoGpuError",
    "OperatorTimes",
    "Problem",
    "RequestSettings",
    "RuntimeSettings",
    "Secret",
    "Settings",
    "StructuralTags",
    "SyntheticSettings",
    "TorchSettings",
    "check_settings",
    "choose_engine",
    "config_json",
    "early_answer",
    "exit_code_of",
    "findings_text",
    "help_text",
    "load_settings",
    "plan_budgets",
    "print_config",
    "read_engine_facts",
    "refuse_missing_packages",
    "split_command",
]
