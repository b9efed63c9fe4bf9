"""The deployment as services look it up: a JSON file of checkpoints with place and coordinates."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from city.places import Deployment
from headwater.errors import UsageError


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A place where a device captures what passes."""

    checkpoint_id: str
    place: str
    district: str
    latitude: float
    longitude: float
    device_ip: str
    recognition_ip: str


def checkpoints_of(deployment: Deployment) -> list[Checkpoint]:
    """The checkpoints of a deployment."""
    return [
        Checkpoint(
            c.checkpoint_id, c.place, c.district, c.latitude, c.longitude, c.ip, c.recognition_ip
        )
        for c in deployment.cameras
    ]


def save_lookup(checkpoints: list[Checkpoint], file: Path) -> None:
    """Write the file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = [asdict(checkpoint) for checkpoint in checkpoints]
    file.write_text(json.dumps(rows, ensure_ascii=False, indent=1))


def read_lookup(file: Path) -> list[Checkpoint]:
    """Read the file. Raises UsageError when it cannot."""
    try:
        return [Checkpoint(**row) for row in json.loads(file.read_text())]
    except (OSError, ValueError, TypeError) as e:
        raise UsageError(f"{file} is no file of checkpoints: {e}") from e
