"""The table of all options, joined from its topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.options.tables.engine import ENGINE
from service.options.tables.general import GENERAL
from service.options.tables.legacy import LEGACY
from service.options.tables.media import DIFFUSION, MEDIA
from service.options.tables.ours import OURS
from service.options.tables.requests import REQUESTS
from service.options.tables.router import ROUTER
from service.options.tables.tensorrt import TENSORRT
from service.options.tables.transport import TRANSPORT

if TYPE_CHECKING:
    from service.options.option import Option

OPTIONS: tuple[Option, ...] = (
    *GENERAL,
    *ENGINE,
    *REQUESTS,
    *OURS,
    *TENSORRT,
    *MEDIA,
    *DIFFUSION,
    *TRANSPORT,
    *ROUTER,
    *LEGACY,
)

BY_NAME: dict[str, Option] = {option.name: option for option in OPTIONS}
