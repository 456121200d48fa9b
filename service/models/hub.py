"""Models by hub id: downloaded with the hub's own client into the hub's own cache."""

import os
import sys
from pathlib import Path

from service.models.errors import ModelError, ModelInvalid, ModelUnavailable
from service.models.folder import require_model_files, require_safetensors
from service.models.progress import ProgressDisplay

WANTED = ["*.safetensors", "*.json", "*.jinja", "tokenizer.model", "tiktoken.model", "merges.txt"]
"""Weights that cannot carry code, and what describes them."""
REFUSED = ["*/*"]
"""Folders inside a repository hold other formats of the same weights, or code."""


def fetch_from_hub(hub_id: str, progress: ProgressDisplay, *, offline: bool) -> Path:
    """Return the folder of a hub model, downloaded first if it is not cached; nothing in it is executed.

    Raises ModelInvalid for an id that the hub does not know or will not give, ModelUnavailable when the hub
    cannot be reached. The client's own settings hold (HF_HOME, HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE).
    """
    # Late: the client takes half a second to import, and built-in models and folders do not need it.
    # Its own type hints leave a few things open.
    from huggingface_hub import (  # noqa: PLC0415
        errors,
        snapshot_download,  # pyright: ignore[reportUnknownVariableType]
        utils,
    )

    if not sys.stderr.isatty():
        utils.disable_progress_bars()  # type: ignore[attr-defined]  # documented, but not in its __all__
    offline = offline or os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}
    if not offline:
        progress.say(f"{hub_id}: looking at the hub (safetensors and tokenizer files only)")
    try:
        folder = Path(
            snapshot_download(
                hub_id, allow_patterns=WANTED, ignore_patterns=REFUSED, local_files_only=offline
            )
        )
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as exc:
        problem = "the hub does not give it to us (no such model, or HF_TOKEN lacks access to it)"
        raise ModelInvalid(
            hub_id, problem, "check the name; there is no folder of that name here either"
        ) from exc
    except errors.LocalEntryNotFoundError as exc:
        raise not_reached(hub_id, "offline" if offline else "the hub cannot be reached") from exc
    except Exception as exc:
        raise not_reached(hub_id, f"the download failed ({type(exc).__name__})") from exc
    require_model_files(hub_id, folder)
    require_safetensors(hub_id, folder)
    return folder


def not_reached(hub_id: str, why: str) -> ModelError:
    """Build the error of a model that is neither cached nor to be had now."""
    return ModelUnavailable(
        hub_id,
        f"it is not in the hub's cache and {why}",
        "there is no folder of that name here either; name a folder or the built-in smollm2-135m",
    )
