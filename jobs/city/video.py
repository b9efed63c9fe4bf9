"""Flow 2, video ingest: an instruction, a batch job, records of what moves, a table, a short clip.

Instructions and records carry URLs; the video itself goes from its storage to the job. The service
reads both topics: an instruction becomes a Spark job, a data record a row of the table.
"""

from __future__ import annotations

import io
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image
from pyspark.sql import SparkSession

from city.fields import VIDEO_INSTRUCTIONS, VIDEO_OBJECTS, VideoInstruction, VideoObject
from city.flows import City, Figure, Site
from city.moving_objects import Box, Moving, background, boxes_of, link, synopsis
from city.videos import LANE_HEIGHT, OBJECT_HEIGHT, MovingObject
from city.whole_topics import partitions_of
from headwater import Consumer, Producer

FLOW = "video ingest"
TASKS = 2
POLL_MS = 200
ASK_HOURS = (9.5, 13.5)
"""The operators send the first half of their instructions, then the other."""
URL_TIMEOUT_S = 30
SEND_TIMEOUT_S = 30.0
CLIP_SCALE = 4
CLIP_FRAME_MS = 60
BOXES = "frame INT, x INT, y INT, width INT, height INT"
ROWS = (
    "object_id STRING, video_id STRING, instruction_id STRING, kind STRING, first_frame INT, "
    "last_frame INT, track ARRAY<ARRAY<INT>>, clip_url STRING"
)
MERGE = """
MERGE INTO delta.`{table}` AS known USING {found} AS found ON known.object_id = found.object_id
WHEN NOT MATCHED THEN INSERT *
"""


def load_video(url: str) -> Any:
    """The frames of a video in storage."""
    with urllib.request.urlopen(url, timeout=URL_TIMEOUT_S) as response:
        return np.load(io.BytesIO(response.read()), allow_pickle=False)


def find_boxes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: rows (url, first, end) become the boxes of these frames."""
    for batch in batches:
        found: list[Box] = []
        for row in batch.to_pylist():
            frames = load_video(row["url"])
            still = background(frames)
            for number in range(row["first"], min(row["end"], len(frames))):
                found += boxes_of(frames[number], still, number)
        names = ("frame", "x", "y", "width", "height")
        columns = [pa.array([getattr(b, n) for b in found], pa.int32()) for n in names]
        yield pa.RecordBatch.from_arrays(columns, names=list(names))


def analyse(spark: SparkSession, url: str) -> list[Moving]:
    """The batch job of one video: each task looks at its share of the frames."""
    count = len(load_video(url))
    share = -(-count // TASKS)
    parts = [(url, n * share, (n + 1) * share) for n in range(TASKS)]
    frame = spark.createDataFrame(parts, "url STRING, first INT, end INT").repartition(TASKS)
    rows = frame.mapInArrow(find_boxes, BOXES).collect()
    return link(Box(r.frame, r.x, r.y, r.width, r.height) for r in rows)


def save_clip(url: str, objects: Sequence[Moving], file: Path) -> None:
    """Write the synopsis as a GIF."""
    frames = synopsis(load_video(url), objects)
    size = (frames.shape[2] * CLIP_SCALE, frames.shape[1] * CLIP_SCALE)
    pictures = [Image.fromarray(f).resize(size, Image.Resampling.NEAREST) for f in frames]
    file.parent.mkdir(parents=True, exist_ok=True)
    pictures[0].save(
        file, save_all=True, append_images=pictures[1:], duration=CLIP_FRAME_MS, loop=0
    )


class Video:
    """The flow."""

    name = FLOW

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._jobs = 0

    def start(self, city: City) -> None:
        """Put the videos into storage, start the service, plan the operators' instructions."""
        self._city = city
        self._table = str(city.out / "tables" / "video_objects")
        city.spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{self._table}` ({ROWS}) USING delta")
        videos = city.world.videos
        self._urls = {v.video_id: v.save(city.out / "storage" / "videos") for v in videos}
        half = len(videos) // 2
        for hour, chosen in zip(ASK_HOURS, (videos[:half], videos[half:]), strict=True):
            names = [video.video_id for video in chosen]
            city.schedule.at(hour, f"{len(names)} videos", partial(self._ask, names))
        self._thread = threading.Thread(
            target=self._run, args=(city.site,), name="city-video", daemon=True
        )
        self._thread.start()

    def _ask(self, names: Sequence[str]) -> None:
        with Producer(self._city.site.servers) as producer:
            for name in names:
                asked = VideoInstruction(f"ask-{name}", name, self._urls[name], "operator")
                producer.send(VIDEO_INSTRUCTIONS, asked.to_wire(), key=asked.instruction_id)
            producer.flush(SEND_TIMEOUT_S)

    def _run(self, site: Site) -> None:
        try:
            with (
                Consumer(bootstrap_servers=site.servers, client_id="city-video") as consumer,
                Producer(site.servers, client_id="city-video") as producer,
            ):
                parts = partitions_of(consumer, (VIDEO_INSTRUCTIONS, VIDEO_OBJECTS))
                consumer.assign(parts)
                consumer.seek_to_beginning(*parts)
                while not self._stopping.is_set() and self._city.site.name == site.name:
                    for part, records in consumer.poll(POLL_MS).items():
                        values = [record.value or b"" for record in records]
                        if part.topic == VIDEO_OBJECTS:
                            self._store([VideoObject.from_wire(value) for value in values])
                            continue
                        for value in values:
                            self._analyse(VideoInstruction.from_wire(value), producer)
        except Exception as e:  # noqa: BLE001 - the end of the thread: `stop` raises it
            self._error = e

    def _analyse(self, asked: VideoInstruction, producer: Producer) -> None:
        self._jobs += 1
        found = analyse(self._city.spark, asked.video_url)
        clip = self._city.out / "storage" / "clips" / f"{asked.video_id}.gif"
        save_clip(asked.video_url, found, clip)
        for number, moving in enumerate(found):
            told = VideoObject(
                object_id=f"{asked.video_id}/{number}",
                video_id=asked.video_id,
                instruction_id=asked.instruction_id,
                kind=moving.kind,
                first_frame=moving.boxes[0].frame,
                last_frame=moving.boxes[-1].frame,
                track=moving.track,
                clip_url=clip.resolve().as_uri(),
            )
            producer.send(VIDEO_OBJECTS, told.to_wire(), key=asked.video_id)
        producer.flush(SEND_TIMEOUT_S)

    def _store(self, objects: Sequence[VideoObject]) -> None:
        columns = [name.split()[0] for name in ROWS.split(", ")]
        rows = [tuple(getattr(one, name) for name in columns) for one in objects]
        found = self._city.spark.createDataFrame(rows, ROWS)
        self._city.spark.sql(MERGE.replace("{table}", self._table), found=found)

    def stop(self) -> None:
        """End the service. Raises its error, unless its site was lost: that is why it ended."""
        self._stopping.set()
        self._thread.join()
        if self._error is not None and len(self._city.sites) == 1:
            raise self._error

    def figures(self) -> Sequence[Figure]:
        """Every object of every video: kind, times, and the track, frame by frame."""
        rows = self._city.spark.read.format("delta").load(self._table).collect()
        found = sorted(
            (r.video_id, r.kind, r.first_frame, r.last_frame, tuple(map(tuple, r.track)))
            for r in rows
        )
        videos = self._city.world.videos
        truth = sorted((v.video_id, *_told(thing)) for v in videos for thing in v.objects)
        clips = [f.stem for f in (self._city.out / "storage" / "clips").glob("*.gif")]
        wrong = len(set(found) ^ set(truth)) + len(found) - len(set(found))
        name = f"objects of {len(videos)} videos, their tracks"
        said = f"{len(found):,} objects, {wrong:,} differ"
        return [
            Figure(FLOW, name, f"{len(truth):,} objects", said, found == truth),
            Figure.same(FLOW, "clips", len(videos), len(clips)),
            Figure.same(FLOW, "jobs, an instruction each", len(videos), self._jobs),
        ]


def _told(thing: MovingObject) -> tuple[str, int, int, tuple[tuple[int, int], ...]]:
    y = thing.lane * LANE_HEIGHT + (LANE_HEIGHT - OBJECT_HEIGHT) // 2
    frames = range(thing.first_frame, thing.last_frame + 1)
    return (
        thing.kind,
        thing.first_frame,
        thing.last_frame,
        tuple((thing.left(n), y) for n in frames),
    )
