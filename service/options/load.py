"""`load_settings`: command line, environment and file become `Settings`, or one error with every problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.options.asked import engine_of
from service.options.availability import Availability
from service.options.budgets import BudgetError, DrainBudgets, OperatorTimes, plan_budgets
from service.options.build import Outcome, build_settings
from service.options.command_line import parse_command_line
from service.options.engine_arguments import engine_arguments, publishing_of, role_of
from service.options.engine_arguments.surroundings import Surroundings
from service.options.errors import Complaints, ConfigError
from service.options.machine import read_engine_facts
from service.options.resolve import Resolution, resolve
from service.options.rules import check_rules
from service.options.structural_tags import check_tags

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from service.options.engine_choice import EngineFacts, EngineName
    from service.options.framework import FrameworkFacts
    from service.options.settings import Settings


def load_settings(
    argv: Sequence[str],
    environ: Mapping[str, str],
    framework: FrameworkFacts,
    facts: EngineFacts | None = None,
) -> Settings:
    """The configuration of a worker.

    argv: the words after the sub-command. environ: read, never changed. facts: what is installed, for what
    ``--engine auto`` comes to; read from the machine when None.
    Reads the ``--config`` file, that of ``--extra-engine-args``, an ``@FILE`` payload, and looks whether the
    template and the adapters exist; no network, no other file.
    Raises ConfigError with everything that is wrong, not only the first.
    """
    facts = facts or read_engine_facts(environ)
    complaints = Complaints()
    given = resolve(parse_command_line(argv, complaints), environ, complaints)
    engine = engine_of(given, facts)
    resolution = given.with_defaults_of(engine)
    Availability(engine, framework, complaints).check(resolution)
    check_rules(resolution, engine, environ, framework, complaints)
    outcome = _outcome(resolution, engine, framework, facts, complaints)
    check_tags(resolution, outcome, framework, facts.xgrammar_version, complaints)
    if outcome.arguments is not None:
        Surroundings(outcome.arguments, facts.gpus, environ, complaints).check()
    budgets = _budgets(resolution, complaints)
    if resolution["engine_request_limit"].is_given:
        resolution = resolution.adopt("max_live", "engine_request_limit")
    return build_settings(resolution, outcome, budgets, environ, complaints.warnings)


def _budgets(resolution: Resolution, complaints: Complaints) -> DrainBudgets:
    """The last of the checks. Raises ConfigError with all that was found until now."""
    try:
        budgets = plan_budgets(resolution.get("drain_timeout", float), _operator_times(resolution))
    except BudgetError as error:
        complaints.refuse("shutdown budgets", None, str(error))
        raise ConfigError(complaints.problems) from error
    complaints.raise_if_any()
    return budgets


def _outcome(
    resolution: Resolution,
    engine: EngineName,
    framework: FrameworkFacts,
    facts: EngineFacts,
    complaints: Complaints,
) -> Outcome:
    role, publishing = role_of(resolution), publishing_of(resolution, framework)
    if engine != "trtllm":
        return Outcome(engine, role, publishing, None)
    arguments = engine_arguments(resolution, role, publishing, facts.tensorrt_version, complaints)
    return Outcome(engine, role, publishing, arguments)


def _operator_times(resolution: Resolution) -> OperatorTimes:
    grace = resolution["grace_period"]
    return OperatorTimes(
        grace_s=resolution.get("grace_period", float) if grace.is_given else None,
        worker_timeout_s=resolution.find("worker_timeout", int),
        prefill_drain_s=resolution.find("prefill_drain_timeout", float),
        termination_grace_s=resolution.find("termination_grace", float),
    )
