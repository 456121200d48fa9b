"""What the arguments need of this machine: folders, a package, a GPU for every rank, variables left alone."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from pathlib import Path
from typing import TYPE_CHECKING

from actors.engines.trtllm_adapters import NamedAlike, adapters_by_name
from service.options.engine_arguments.reading import is_list_of_texts
from service.options.engine_arguments.value_kinds import as_whole
from service.options.errors import Problem
from service.options.machine import has_package

if TYPE_CHECKING:
    from collections.abc import Mapping

    from service.options.engine_arguments.arguments import EngineArguments
    from service.options.errors import Complaints

_ADAPTERS = "lora_config.lora_dir"
_DISK_CACHE, _DISK_BYTES = "kv_cache_config.disk_cache_path", "kv_cache_config.disk_cache_size"
_GROUP = "kv_connector_config"
_CONNECTOR = f"{_GROUP}.connector_module"
_RANKS = ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size")
# Of a launcher's: more than one means that ranks may be on other machines.
_LAUNCHED = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NNODES")
_SPAWNED, _RAY_SIZE = "TLLM_SPAWN_PROXY_PROCESS", "RAY_LOCAL_WORLD_SIZE"
_SINGLE_PROCESS, _NO_MPI = "TLLM_WORKER_USE_SINGLE_PROCESS", "TLLM_DISABLE_MPI"
# Variables that change how TensorRT-LLM starts its engine.
_UNTRIED = {
    _SINGLE_PROCESS: "on one GPU it puts the engine into this process, which dies with it; unset it",
    _NO_MPI: "TensorRT-LLM then starts its engine with Ray, with which this worker was never tried; unset it",
}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """gpus: those that this process may see; 0 where nobody could tell. environ: only read."""

    arguments: EngineArguments
    gpus: int
    environ: Mapping[str, str]
    complaints: Complaints

    def check(self) -> None:
        """Refuse what is not there, and warn about what will probably not work."""
        self._check_adapters()
        self._check_disk_cache()
        self._warn_about_variables()
        self._warn_about_ranks()

    def _check_adapters(self) -> None:
        """A folder each, with its own name; of NeMo's, which are files, only whether there is something."""
        folders = self.arguments.value(_ADAPTERS)
        kind = "file" if self.arguments.value("lora_config.lora_ckpt_source") == "nemo" else "folder"
        if not is_list_of_texts(folders):
            # None, or refused by its type.
            return
        is_there = Path.exists if kind == "file" else Path.is_dir
        missing = [folder for folder in folders if not is_there(Path(folder))]
        for folder in missing:
            self.complaints.refuse(self.arguments.place(_ADAPTERS), folder, f"there is no such {kind}")
        try:
            adapters_by_name(folder for folder in folders if folder not in missing)
        except NamedAlike as alike:
            why = f"is called as {alike.first} is, and names tell adapters apart: rename one of the two"
            self.complaints.refuse(self.arguments.place(_ADAPTERS), str(alike.second), why)

    def _check_disk_cache(self) -> None:
        """TensorRT-LLM looks for its folder where it has a size, whichever manager of the KV cache runs."""
        folder, size = self.arguments.value(_DISK_CACHE), self.arguments.value(_DISK_BYTES)
        if (as_whole(size) or 0) <= 0:
            return
        if folder in (None, ""):
            self.complaints.refuse(
                self.arguments.place(_DISK_BYTES), size, "needs a folder: give disk_cache_path"
            )
        elif isinstance(folder, str) and not Path(folder).is_dir():
            self.complaints.refuse(self.arguments.place(_DISK_CACHE), folder, "there is no such folder")

    def _warn_about_variables(self) -> None:
        for name, why in _UNTRIED.items():
            if self._is_on(name):
                self.complaints.warn(f"{name}: {why}")

    def _warn_about_ranks(self) -> None:
        ranks = self._ranks_here()
        if 0 < self.gpus < ranks:
            sizes = {name: self._count(name) for name in _RANKS}
            given = ", ".join(
                f"{self.arguments.place(name)} {size}" for name, size in sizes.items() if size > 1
            )
            self.complaints.warn(
                f"{given}: TensorRT-LLM wants a GPU for each of {ranks} ranks on this machine, and sees "
                f"{self.gpus}; give --gpus-per-node where ranks are on other machines"
            )

    def _ranks_here(self) -> int:
        """As TensorRT-LLM spreads them over machines; 0 where a launcher does that, or Ray."""
        ranks = prod(self._count(name) for name in _RANKS)
        is_with_ray = self._is_on(_NO_MPI) or self.arguments.value("orchestrator_type") == "ray"
        if is_with_ray or _RAY_SIZE in self.environ:
            return 0
        on_one = self.arguments.value("gpus_per_node")
        if isinstance(on_one, int) and on_one > 0:
            return ranks // ceil(ranks / on_one)
        is_launched = any(self.environ.get(name, "1") not in {"", "0", "1"} for name in _LAUNCHED)
        return 0 if is_launched or self._is_on(_SPAWNED) else ranks

    def _is_on(self, name: str) -> bool:
        """By a variable, or one that the arguments set."""
        own = self.arguments.value(f"env_overrides.{name}")
        return str(self.environ.get(name, "") if own is None else own) not in {"", "0"}

    def _count(self, name: str) -> int:
        value = self.arguments.value(name)
        return value if isinstance(value, int) and value > 0 else 1


def missing_connector(arguments: EngineArguments) -> Problem | None:
    """What is wrong when the module of the KV cache's connector is not installed, else None.

    TensorRT-LLM imports it late, in the processes of its engine. Looked up, not imported.
    """
    module = arguments.value(_CONNECTOR)
    package = module.partition(".")[0] if isinstance(module, str) else ""
    if not package or has_package(package):
        return None
    where, why = arguments.place(_CONNECTOR), f"the package {package} is not installed: install it, or "
    if _is_by_option(arguments):
        return Problem(where, "kvbm", f"{why}give --connector none")
    return Problem(where, module, f"{why}leave kv_connector_config out")


def _is_by_option(arguments: EngineArguments) -> bool:
    """``--connector`` gives all of it in one piece, and nobody wrote the module's name."""
    return any(path == _GROUP for path, _ in arguments.origins)
