"""What moves in a video: every planted object, its kind and its track, frame by frame."""

from __future__ import annotations

import numpy as np

from city.moving_objects import Box, background, boxes_of, link, synopsis
from city.videos import FRAMES, LANE_HEIGHT, OBJECT_HEIGHT, MovingObject, Video, film


def analysed(video: Video) -> list[tuple[str, int, int, list[list[int]]]]:
    frames = video.frames()
    still = background(frames)
    boxes = [box for n in range(len(frames)) for box in boxes_of(frames[n], still, n)]
    return sorted((o.kind, o.boxes[0].frame, o.boxes[-1].frame, o.track) for o in link(boxes))


def told(thing: MovingObject) -> tuple[str, int, int, list[list[int]]]:
    y = thing.lane * LANE_HEIGHT + (LANE_HEIGHT - OBJECT_HEIGHT) // 2
    frames = range(thing.first_frame, thing.last_frame + 1)
    return thing.kind, thing.first_frame, thing.last_frame, [[thing.left(n), y] for n in frames]


def test_every_object_of_many_videos_is_found() -> None:
    for video in film(np.random.default_rng(5), 6, 10):
        assert analysed(video) == sorted(map(told, video.objects)), video.video_id


def test_noise_is_no_object() -> None:
    assert analysed(Video("still", 0, 1, ())) == []
    assert link([Box(1, 0, 0, 4, 8), Box(2, 1, 0, 4, 8)]) == []


def test_two_things_in_two_lanes_are_two_objects() -> None:
    boxes = [Box(n, n, y, 4, 8) for n in range(5) for y in (0, 16)]
    assert [o.boxes[0].y for o in link(boxes)] == [0, 16]


def test_the_clip_is_as_long_as_the_longest_object() -> None:
    video = Video("v", 0, 1, (MovingObject("person", 0, 60, 80, 0, 2),))
    frames = video.frames()
    still = background(frames)
    objects = link(b for n in range(FRAMES) for b in boxes_of(frames[n], still, n))
    clip = synopsis(frames, objects)
    assert clip.shape == (21, *frames.shape[1:])
    assert clip[0, 4, 0] == frames[60, 4, 0] > still[4, 0]
