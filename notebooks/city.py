# Databricks notebook source
# MAGIC %md
# MAGIC # A city's cameras, piece by piece
# MAGIC
# MAGIC `make city` runs a whole day of a city at once and proves every figure. This notebook takes it apart: a small city, its devices, the live watch-list, a table, cloned plates, a video. It needs Headwater with its extra `demo` (in a clone: `make setup`), Java 17 or newer, and the clone itself, as the city is in `jobs/city`. Every cell can be run again.

# COMMAND ----------

import os
import sys
from pathlib import Path

import headwater_spark

jobs = Path(headwater_spark.__file__).resolve().parents[2] / "jobs"
sys.path.insert(0, str(jobs))
os.environ["PYTHONPATH"] = str(jobs)  # for Spark's Python workers
spark = headwater_spark.session("local[5]")
cluster = headwater_spark.Cluster.start(spark, brokers=3)
servers = cluster.bootstrap_servers

# COMMAND ----------

# MAGIC %md
# MAGIC ## The city
# MAGIC
# MAGIC 240 cameras; half of them recognise plates by themselves, the others send pictures to one of 12 servers. The day comes from a seed. `world` is the truth that `make city` checks everything against; devices send it, and no flow may look at it.

# COMMAND ----------

import pandas as pd
from city.feeds import feeds_of, person, plate
from city.world import WorldPlan, make_world

world = make_world(WorldPlan(vehicles=20_000, faces=6_000))
print(f"{len(world.vehicles):,} captures of {world.cars:,} cars, {len(world.faces):,} of faces")
pd.DataFrame([(c.checkpoint_id, c.place, c.ip, c.recognition_ip) for c in world.deployment.cameras[:5]],
             columns=["checkpoint", "place", "device", "recognised by"])

# COMMAND ----------

# MAGIC %md
# MAGIC ## Topics
# MAGIC
# MAGIC Data topics refuse messages over 64 KB: pictures and videos stay in their storage, records carry the URL. Each topic says what its key is.

# COMMAND ----------

from city.fields import TOPICS
from headwater import Admin, NewTopic

with Admin(servers) as admin:
    known = admin.list_topics()
    admin.create_topics([NewTopic(t.name, t.partitions, 3, configs=t.configs) for t in TOPICS if t.name not in known])
pd.DataFrame([(t.name, t.partitions, t.key) for t in TOPICS], columns=["topic", "partitions", "key"])

# COMMAND ----------

# MAGIC %md
# MAGIC ## Watch a taxi, live
# MAGIC
# MAGIC The live service compares each record with the instructions it has in memory, and reports a match at once. It takes instructions while it runs. Here it runs in a thread; `make city` gives it a process.

# COMMAND ----------

import threading

from city.fields import WATCH_INSTRUCTIONS
from city.instructions import WatchInstruction
from city.live import LiveService
from headwater import Producer
from headwater.system import SystemClock

if "service" not in globals():
    service = LiveService(servers, {}, SystemClock())
    running = threading.Thread(target=service.run, daemon=True)
    running.start()
    service.ready.wait(30)

taxi = WatchInstruction("taxi", traits=(("plate", plate(world.taxis[0])),))
with Producer(servers) as producer:
    producer.send(WATCH_INSTRUCTIONS, taxi.value(), key="taxi").result(10)
while "taxi" not in service.desk.active:
    threading.Event().wait(0.05)
service.summary()

# COMMAND ----------

# MAGIC %md
# MAGIC ## The devices send their day
# MAGIC
# MAGIC `send_table` takes Arrow: a row is a record, its value a JSON object with the keys of the book that this city comes from.

# COMMAND ----------

import numpy as np
from city.feeds import KEY, TIME

feeds = feeds_of(world)
if "sent" not in globals():
    sent = {}
    with Producer(servers, acks="all") as producer:
        for feed in feeds:
            rows = feed.table(np.arange(len(feed.truth)))
            done = producer.send_table(feed.topic, rows, key=KEY, value=feed.columns, timestamp=TIME)
            sent[feed.topic] = done.result(60).rows
sent

# COMMAND ----------

# MAGIC %md
# MAGIC ## The track
# MAGIC
# MAGIC Points come in the order in which the matched records are in the log. The truth has the same captures.

# COMMAND ----------

from city.fields import TRACKS
from city.whole_topics import read_to_end
from headwater import Consumer
import json

expected = int(((world.vehicles.who == world.taxis[0]) & ~world.vehicles.abnormal).sum())
for _ in range(200):
    if len(service.desk.reported) >= expected:
        break
    threading.Event().wait(0.1)
places = {c.checkpoint_id: c.place for c in world.deployment.cameras}
with Consumer(bootstrap_servers=servers) as consumer:
    reports = [json.loads(r.value) for r in read_to_end(consumer, [TRACKS], SystemClock())]
track = pd.DataFrame([r for r in reports if r["kind"] == "point"])
track["time"] = pd.to_datetime(track.capture_ms, unit="ms").dt.time
track["place"] = track.checkpoint_id.map(places)
assert track.record_id.nunique() == expected
track[["time", "place"]].head(8)

# COMMAND ----------

# MAGIC %md
# MAGIC ## A table, and the hours of the day
# MAGIC
# MAGIC Spark reads the topic; rows that recognition could not read are left out, as in the ingest of `make city`.

# COMMAND ----------

from city.fields import ABNORMAL, VEHICLES, VEHICLE_WIRE
from pyspark.sql import functions as F

schema = ", ".join(f"`{key}` STRING" for key in VEHICLE_WIRE.values())
records = (
    spark.read.format("headwater")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", VEHICLES)
    .load()
    .select(F.from_json(F.col("value").cast("string"), schema).alias("row"))
)
captures = records.select([F.col(f"row.`{key}`").alias(name) for name, key in VEHICLE_WIRE.items()])
captures = captures.where(F.col("plate") != ABNORMAL).withColumn("capture_time", F.to_timestamp("capture_time"))
captures = captures.localCheckpoint()
assert captures.count() == int((~world.vehicles.abnormal).sum())
captures.groupBy(F.hour("capture_time").alias("hour")).count().orderBy("hour").toPandas().set_index("hour").T

# COMMAND ----------

# MAGIC %md
# MAGIC ## Cloned plates
# MAGIC
# MAGIC The same plate at two places, too far apart for the time: above 160 km/h. SQL finds the pairs; twenty were planted.

# COMMAND ----------

from city.clock import DAY_MS, DAY_START_MS
from city.clones import CloneTruth, clone_pairs

checkpoints = spark.createDataFrame(
    [(c.checkpoint_id, c.latitude, c.longitude) for c in world.deployment.cameras],
    "checkpoint_id STRING, latitude DOUBLE, longitude DOUBLE",
)
pairs = clone_pairs(spark, captures, checkpoints, DAY_START_MS, DAY_START_MS + 2 * DAY_MS).toPandas()
truth = CloneTruth.of(world)
assert set(zip(pairs.first_record, pairs.second_record)) == truth.pairs
print(f"{len(pairs)} pairs, {truth.planted_in(list(truth.pairs))} of {truth.planted} planted clones among them")
pairs[["plate", "first_time", "second_time", "km", "kmh"]].round(1).head()

# COMMAND ----------

# MAGIC %md
# MAGIC ## A video
# MAGIC
# MAGIC An instruction carries the video's URL; a Spark job loads it, finds what moves, and a short clip shows all of it at once.

# COMMAND ----------

from tempfile import mkdtemp

from city.video import analyse, save_clip

storage = Path(mkdtemp())
video = world.videos[0]
url = video.save(storage)
objects = analyse(spark, url)
save_clip(url, objects, storage / "clip.gif")
assert len(objects) == len(video.objects)
pd.DataFrame([(o.kind, o.boxes[0].frame, o.boxes[-1].frame, o.track[0], o.track[-1]) for o in objects],
             columns=["kind", "first frame", "last frame", "from", "to"])

# COMMAND ----------

# MAGIC %md
# MAGIC ## Stop
# MAGIC
# MAGIC The service and the brokers end; the data stays in `headwater-data`.

# COMMAND ----------

service.stopping.set()
running.join()
cluster.stop()
spark.stop()
