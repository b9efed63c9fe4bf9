# Databricks notebook source
# MAGIC %md
# MAGIC # Orders: topic, Delta table and alerts, exactly once
# MAGIC
# MAGIC This notebook attaches to a Headwater cluster that runs elsewhere (`headwater up`, or an application of its own with `headwater up --spark`). It writes orders to a topic, reads them into a Delta table, and writes alerts to another topic, each exactly once. Every cell can be run again.
# MAGIC
# MAGIC The cluster's Python needs Headwater with its extra `spark`. It is in no package index: upload the wheel that `make dist` builds, and name it as a library of the cluster, or in the next cell.

# COMMAND ----------

# MAGIC %pip install "/Volumes/lake/libs/headwater-0.1.0-py3-none-any.whl[spark]"

# COMMAND ----------

import os

try:
    dbutils.widgets.text("servers", "broker-1:9092")
    dbutils.widgets.text("folder", "dbfs:/tmp/headwater-orders")
    servers, folder = dbutils.widgets.get("servers"), dbutils.widgets.get("folder")
except NameError:  # outside Databricks
    servers, folder = os.environ["HEADWATER_BOOTSTRAP_SERVERS"], os.environ["ORDERS_FOLDER"]

# COMMAND ----------

# MAGIC %md
# MAGIC `check` probes every executor, and names what one lacks.

# COMMAND ----------

import headwater_spark

headwater_spark.register(spark)
print(len(headwater_spark.check(spark).executors), "kinds of executors have what they need")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Orders
# MAGIC
# MAGIC A batch write is one transaction: all of its records become visible, or none.

# COMMAND ----------

from headwater import Admin, NewTopic
from pyspark.sql import functions as F

with Admin(servers) as admin:
    missing = {"orders", "alerts"} - set(admin.list_topics())
    admin.create_topics([NewTopic(name, 3) for name in sorted(missing)])

if "orders" in missing:
    orders = spark.range(1000).select(
        F.col("id").cast("string").alias("key"),
        F.to_json(F.struct("id", (F.col("id") * 37 % 500).alias("amount"))).alias("value"),
    )
    (
        orders.write.format("headwater")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "orders")
        .mode("append")
        .save()
    )

# COMMAND ----------


def topic(reader, name):
    reader = reader.format("headwater").option("kafka.bootstrap.servers", servers)
    return reader.option("subscribe", name).option("startingOffsets", "earliest").load()


def parsed(rows):
    schema = "id long, amount long"
    return rows.select(F.from_json(F.col("value").cast("string"), schema).alias("o")).select("o.*")


parsed(topic(spark.read, "orders")).orderBy("id").show(5)

# COMMAND ----------

# MAGIC %md
# MAGIC ## A Delta table of the orders
# MAGIC
# MAGIC `availableNow` reads to the topic's end and stops: the form for a scheduled job. The next run goes on from the checkpoint.

# COMMAND ----------

query = (
    parsed(topic(spark.readStream, "orders"))
    .writeStream.format("delta")
    .option("checkpointLocation", f"{folder}/orders-checkpoint")
    .trigger(availableNow=True)
    .start(f"{folder}/orders")
)
query.awaitTermination()
table = spark.read.format("delta").load(f"{folder}/orders")
print(f"{table.count()} rows, {table.select('id').distinct().count()} orders")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Alerts, exactly once
# MAGIC
# MAGIC Each micro-batch is an epoch transaction: after any crash the next run goes on without a missing or a repeated alert.

# COMMAND ----------

large = parsed(topic(spark.readStream, "orders")).where("amount >= 450")
query = (
    large.select(F.col("id").cast("string").alias("key"), F.to_json(F.struct("*")).alias("value"))
    .writeStream.format("headwater")
    .option("kafka.bootstrap.servers", servers)
    .option("topic", "alerts")
    .option("checkpointLocation", f"{folder}/alerts-checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

# COMMAND ----------

alerts = parsed(topic(spark.read, "alerts"))
expected = table.where("amount >= 450").count()
print(f"{alerts.count()} alerts, {alerts.select('id').distinct().count()} distinct, {expected} due")
assert alerts.count() == alerts.select("id").distinct().count() == expected
