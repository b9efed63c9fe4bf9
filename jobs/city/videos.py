"""Videos of the city: seconds of grey frames with bright objects that move, and their truth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FRAMES = 90
HEIGHT, WIDTH = 64, 96
LANE_HEIGHT = 16
OBJECT_HEIGHT = 8
BACKGROUND, NOISE, BRIGHT = 40, 6, 220
WIDTH_OF = {"person": 4, "vehicle": 14}


@dataclass(frozen=True)
class MovingObject:
    """The truth of an object: its lane, when it enters and leaves, and how fast it moves."""

    kind: str
    lane: int
    first_frame: int
    last_frame: int
    start_x: int
    pixels_per_frame: int

    @property
    def width(self) -> int:
        """Pixels: what tells a person from a vehicle."""
        return WIDTH_OF[self.kind]

    def left(self, frame: int) -> int:
        """The x of its left edge."""
        return self.start_x + (frame - self.first_frame) * self.pixels_per_frame


@dataclass(frozen=True)
class Video:
    """A video in storage: `url` is relative to the folder of videos; the camera took it."""

    video_id: str
    camera: int
    seed: int
    objects: tuple[MovingObject, ...]

    @property
    def file_name(self) -> str:
        """Its file in the folder of videos."""
        return f"{self.video_id}.npy"

    def frames(self) -> Any:
        """All frames, as an array of (frame, y, x) bytes."""
        rng = np.random.default_rng(self.seed)
        shape = (FRAMES, HEIGHT, WIDTH)
        frames = (BACKGROUND + rng.integers(0, NOISE, shape)).astype(np.uint8)
        for thing in self.objects:
            top = thing.lane * LANE_HEIGHT + (LANE_HEIGHT - OBJECT_HEIGHT) // 2
            for frame in range(thing.first_frame, thing.last_frame + 1):
                left = thing.left(frame)
                frames[frame, top : top + OBJECT_HEIGHT, left : left + thing.width] = BRIGHT
        return frames

    def save(self, folder: Path) -> str:
        """Write the frames as the streaming server does; the URL."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.file_name
        np.save(path, self.frames())
        return path.resolve().as_uri()


def film(rng: np.random.Generator, count: int, cameras: int) -> tuple[Video, ...]:
    """Some videos with one to four objects each, a lane per object."""
    videos = []
    for n in range(count):
        lanes = rng.permutation(HEIGHT // LANE_HEIGHT)[: rng.integers(1, 5)]
        objects = tuple(_object(rng, int(lane)) for lane in sorted(lanes))
        seed, camera = int(rng.integers(0, 2**31)), int(rng.integers(0, cameras))
        videos.append(Video(f"video-{n}", camera, seed, objects))
    return tuple(videos)


def _object(rng: np.random.Generator, lane: int) -> MovingObject:
    kind = str(rng.choice(list(WIDTH_OF)))
    speed = int(rng.integers(1, 4))
    frames = min((WIDTH - WIDTH_OF[kind] - 1) // speed, FRAMES - 11)
    first = int(rng.integers(0, FRAMES - frames))
    return MovingObject(kind, lane, first, first + frames - 1, 0, speed)
