"""Motion in a video: boxes per frame, boxes linked to objects, and a short clip. Pure numpy.

A frame's bright pixels, compared with the video's background, that touch each other are one box. A
box that follows one of the frame before, a few pixels on, is the same object.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

BRIGHTER_BY = 60
"""How much brighter than the background a pixel of an object is, of 255."""
STEP_MAX_PIXELS = 8
"""How far an object moves between two frames."""
PERSON_WIDTH_MAX = 8
FRAMES_MIN = 3
"""What is seen for less is noise."""


@dataclass(frozen=True, slots=True, order=True)
class Box:
    """A moving thing in one frame."""

    frame: int
    x: int
    y: int
    width: int
    height: int


@dataclass
class Moving:
    """An object: its boxes, a frame each."""

    boxes: list[Box] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """A person is narrow, a vehicle wide."""
        widths = sorted(box.width for box in self.boxes)
        return "person" if widths[len(widths) // 2] <= PERSON_WIDTH_MAX else "vehicle"

    @property
    def track(self) -> list[list[int]]:
        """The upper left corner in each frame."""
        return [[box.x, box.y] for box in self.boxes]


def background(frames: Any) -> Any:
    """What does not move: each pixel's median."""
    return np.median(frames, axis=0)


def boxes_of(frame: Any, still: Any, number: int) -> list[Box]:
    """The boxes of one frame."""
    bright = frame.astype(np.int16) - still > BRIGHTER_BY
    left = set(map(tuple, np.argwhere(bright).tolist()))
    boxes = []
    while left:
        reached = [left.pop()]
        for y, x in reached:
            near = {(y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)} & left
            left -= near
            reached.extend(near)
        ys, xs = zip(*reached, strict=True)
        x, y = min(xs), min(ys)
        boxes.append(Box(number, x, y, max(xs) - x + 1, max(ys) - y + 1))
    return sorted(boxes)


def link(boxes: Iterable[Box]) -> list[Moving]:
    """Objects from the boxes of all frames, in the order in which they appear."""
    objects: list[Moving] = []
    for box in sorted(boxes):
        following = [o for o in objects if _follows(box, o.boxes[-1])]
        if following:
            min(following, key=lambda o: abs(box.x - o.boxes[-1].x)).boxes.append(box)
        else:
            objects.append(Moving([box]))
    return [moving for moving in objects if len(moving.boxes) >= FRAMES_MIN]


def _follows(box: Box, last: Box) -> bool:
    overlap = min(box.y + box.height, last.y + last.height) - max(box.y, last.y)
    near = abs(box.x - last.x) <= STEP_MAX_PIXELS
    return box.frame == last.frame + 1 and overlap > 0 and near


def synopsis(frames: Any, objects: Iterable[Moving]) -> Any:
    """A clip as long as the longest object: all of them begin at once, on the still background."""
    still = background(frames).astype(np.uint8)
    shown = list(objects)
    length = max((len(o.boxes) for o in shown), default=1)
    clip = np.repeat(still[None], length, axis=0)
    for moving in shown:
        for n, box in enumerate(moving.boxes):
            rows, columns = slice(box.y, box.y + box.height), slice(box.x, box.x + box.width)
            clip[n, rows, columns] = frames[box.frame, rows, columns]
    return clip
