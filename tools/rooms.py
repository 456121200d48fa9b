"""Check that every module imports only what its room may: ``python -m tools.rooms``.

An allow-list, so a new dependency is a visible change of the table below; import-linter and ruff's TID251 say
what is forbidden, never "nothing else". Imports under ``TYPE_CHECKING`` and ``import_module("name")`` count.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

# Ways to run or reach something beside the event loop, and the process's own surroundings.
CONCURRENCY = frozenset({"asyncio", "threading", "concurrent", "multiprocessing", "queue", "selectors"})
SURROUNDINGS = frozenset(
    {"argparse", "subprocess", "socket", "signal", "os.environ", "os.getenv", "os.putenv"}
)
GRAMMARS = "actors/engines/grammars"
# Drivers with libraries of their own: none imports another, nor what several share any of them.
TORCH, TRTLLM = frozenset({"actors.engines.torch"}), frozenset({"actors.engines.trtllm"})
DRIVERS = TORCH | TRTLLM
TORCH_STACK = frozenset({"llguidance", "numpy", "safetensors", "tokenizers", "torch", "transformers"})


@dataclass(frozen=True, slots=True)
class Room:
    """What the modules under `path` may import; the room with the longest matching path decides."""

    path: str
    packages: frozenset[str]
    """Top-level packages besides the standard library."""
    banned: frozenset[str] = frozenset()
    """Modules, attributes and folders of ours that are not for this room all the same."""


ROOMS = (
    Room("protocols", frozenset({"msgspec", "protocols"}), CONCURRENCY | SURROUNDINGS),
    Room("actors", frozenset({"anyio", "protocols", "actors"}), CONCURRENCY | SURROUNDINGS),
    Room(
        "actors/supervisor.py",
        frozenset({"anyio", "protocols", "actors"}),
        CONCURRENCY - {"asyncio"} | SURROUNDINGS,
    ),
    Room("actors/engines", frozenset({"anyio", "protocols", "actors", "llguidance"}), SURROUNDINGS | DRIVERS),
    Room(
        "actors/engines/torch",
        frozenset({"anyio", "protocols", "actors"}) | TORCH_STACK,
        SURROUNDINGS | TRTLLM,
    ),
    # What both engines that run logits processors share.
    Room("actors/engines/foreign", frozenset({"protocols", "actors", "torch"}), SURROUNDINGS | DRIVERS),
    # What both engines that obey constraints share; transformers reads their models' tokenizers.
    Room(
        GRAMMARS,
        frozenset({"anyio", "protocols", "actors", "llguidance", "numpy", "transformers"}),
        SURROUNDINGS | DRIVERS,
    ),
    # A caller's constraint is compiled in a process of its own first, which may die of it. This one starts
    # it, with an environment of its own; that one lets no signal but SIGKILL end it.
    Room(
        f"{GRAMMARS}/trial_child.py",
        frozenset({"protocols", "actors"}),
        SURROUNDINGS - {"subprocess", "os.environ"} | DRIVERS,
    ),
    Room(f"{GRAMMARS}/trial.py", frozenset({"protocols", "actors"}), SURROUNDINGS - {"signal"} | DRIVERS),
    Room(
        "actors/engines/trtllm",
        frozenset({"anyio", "protocols", "actors", "llguidance", "tensorrt_llm", "torch", "transformers"}),
        SURROUNDINGS | TORCH,
    ),
    # Runs in the process for trials, too, and asks there what the engine will ask.
    Room(
        "actors/engines/trtllm/constraints/xgrammar_trials.py",
        frozenset({"protocols", "actors", "numpy", "tokenizers", "xgrammar"}),
        SURROUNDINGS | TORCH,
    ),
    # Ends processes that the library has started and left behind.
    Room("actors/engines/trtllm/life/children.py", frozenset(), SURROUNDINGS - {"signal"}),
    Room(
        "service",
        frozenset({"actors", "protocols", "service", "dynamo"})
        | frozenset(
            {"anyio", "msgspec", "opentelemetry", "prometheus_client", "rich", "structlog", "uvloop", "yaml"}
        ),
    ),
    Room(
        "service/models",
        frozenset(
            {"protocols", "service", "gguf", "huggingface_hub", "numpy", "rich", "safetensors", "tokenizers"}
        ),
    ),
)


def room_of(module: PurePosixPath) -> Room | None:
    """Return the room of a file given relative to the repository, None outside of all rooms."""
    rooms = [room for room in ROOMS if module.is_relative_to(room.path)]
    return max(rooms, key=lambda room: len(room.path), default=None)


def imported_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) for everything the module imports or reads from ``os``."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=str(module), level=0, names=names):
                yield from ((node.lineno, f"{module}.{alias.name}") for alias in names)
            case ast.ImportFrom(level=level) if level > 0:
                yield node.lineno, "." * level
            case ast.Attribute(value=ast.Name(id="os"), attr=attribute):
                yield node.lineno, f"os.{attribute}"
            case ast.Call(
                func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name
            case _:
                pass


def is_allowed(name: str, room: Room) -> bool:
    """Say whether a module of `room` may use the dotted `name`."""
    if any(name == ban or name.startswith(f"{ban}.") for ban in room.banned):
        return False
    package = name.partition(".")[0]
    return package in sys.stdlib_module_names or package in room.packages


def check_tree(root: Path) -> list[str]:
    """Return one line for each import that leaves its room, in the order of the files."""
    findings: list[str] = []
    for file in sorted(root.rglob("*.py")):
        module = PurePosixPath(file.relative_to(root).as_posix())
        room = room_of(module)
        if room is None:
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"), filename=str(file))
        findings += [
            f"{module}:{line}: {name} is not for {room.path} (tools/rooms.py has the table)"
            for line, name in imported_names(tree)
            if not is_allowed(name, room)
        ]
    return findings


def main() -> int:
    """Check the repository this file is in; 1 when something is found."""
    findings = check_tree(Path(__file__).resolve().parent.parent)
    print("\n".join(findings) if findings else "rooms: every import stays in its room")
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
