"""Why a model cannot be used, as two errors: ours to wait for, or the operator's to change."""

from typing import ClassVar

from protocols.errors import ServiceError
from service.exit_codes import ExitCode


class ModelError(ServiceError):
    """A model that cannot be had. `name` is what was asked for, `remedy` what would help."""

    exit_code: ClassVar[ExitCode]

    def __init__(self, name: str, problem: str, remedy: str) -> None:
        self.name = name
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"model {name!r}: {problem}; {remedy}")


class ModelUnavailable(ModelError):
    """Something outside is missing: network, package index, disk space. The same start may work later."""

    exit_code = ExitCode.UNAVAILABLE


class ModelInvalid(ModelError):
    """The name or the files are wrong. The same start will fail again."""

    exit_code = ExitCode.CONFIGURATION
