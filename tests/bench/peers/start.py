"""The command line and the registration that all peers share."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from dynamo.common.backend.worker import WorkerConfig


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """name: served model name and component. model: a folder. step_s: seconds per token, 0 for none."""

    name: str
    model: str
    step_s: float


def peer_options() -> PeerOptions:
    """From the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--step-ms", type=float, required=True)
    given = parser.parse_args()
    return PeerOptions(given.name, given.model, given.step_ms / 1000)


def worker_config(options: PeerOptions) -> WorkerConfig:
    """Found through files, asked over TCP, as our worker is."""
    return WorkerConfig(
        namespace="bench",
        component=options.name,
        endpoint="generate",
        model_name=options.model,
        served_model_name=options.name,
        endpoint_types="chat,completions",
        discovery_backend="file",
        request_plane="tcp",
    )
