"""What a worker says about itself before it loads anything: who it is and how it was told to run."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

from service.assembly import LOOPBACK
from service.controls import GUARDED
from service.framework import installed_version
from service.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.options.settings import Settings

# Characters of a value; `--print-config` shows all.
_LONGEST = 80


def say_configuration(settings: Settings, engine: str, instance_id: str) -> None:
    """Once a life. ``given``: every option that is not left at its default, secrets masked.

    instance_id: as its stories and spans name this process.
    """
    _say_who(settings, engine, instance_id)
    log = get_logger("service.serving")
    if settings.engine_arguments is not None:
        log.info("engine.arguments", values=settings.engine_arguments.shown())
    if _has_routes_that_are_off(settings):
        log.warning(
            "config.warning",
            text=f"the control routes {', '.join(GUARDED)} are off: the system server listens beyond "
            f"loopback ({settings.runtime.system_host}) and DYN_ACTOR_CONTROL_TOKEN is not set; set it",
        )


def _say_who(settings: Settings, engine: str, instance_id: str) -> None:
    """What the operator chose, or would look for first."""
    runtime, drain = settings.runtime, settings.drain
    get_logger("service.serving").info(
        "worker.configured",
        instance_id=instance_id,
        version=metadata.version("dynamo-actor-worker"),
        framework=installed_version(),
        engine=engine,
        role=runtime.role.value,
        model=settings.model.model,
        endpoint=f"{runtime.namespace}.{runtime.component}.{runtime.endpoint}",
        discovery=runtime.discovery_backend,
        request_plane=runtime.request_plane,
        system_server="off" if runtime.system_port < 0 else f"{runtime.system_host}:{runtime.system_port}",
        max_live=settings.graph.max_live,
        drain_until_s=drain.drain_until_s,
        hard_exit_s=drain.hard_exit_s,
        given=" ".join(_given(settings)),
    )


def _has_routes_that_are_off(settings: Settings) -> bool:
    """Whoever reaches the server could call them: without a token nobody may."""
    host, port = settings.runtime.system_host, settings.runtime.system_port
    return port >= 0 and host not in LOOPBACK and settings.control_token is None


def _given(settings: Settings) -> Iterator[str]:
    """As the operator knows them; a long value is cut."""
    for item in settings.resolution.items():
        if item.is_given and not item.option.is_action:
            text = item.option.show(item.value)
            yield f"{item.where}={text if len(text) <= _LONGEST else f'{text[: _LONGEST - 1]}…'}"
