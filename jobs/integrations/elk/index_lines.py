"""A topic's log lines into an index of OpenSearch or Elasticsearch, each line once.

    spark-submit jobs/integrations/elk/index_lines.py mylog --index mylog --checkpoint DIR --follow

It does what Logstash's kafka input and elasticsearch output do. A value that is a JSON object is
the document; any other text becomes the field `message` of one. A document's id is the record's
topic, partition and offset: a micro-batch that runs again after a crash writes the same documents.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import click
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from headwater.errors import HeadwaterError
from headwater_spark.scheduled_job import (
    check_topics,
    job_options,
    job_session,
    max_offsets_option,
    run_available,
    run_job,
    settings,
    stream,
    waiting_offsets,
)

BULK_DOCUMENTS = 1_000
REQUEST_S = 60.0
FOLLOW_INTERVAL = "1 second"
SHOWN_CHARACTERS = 300


class BulkError(HeadwaterError):
    """The index did not take a document, or no host answered."""


@click.command("index-lines")
@click.argument("topic")
@click.option("--index", required=True, help="Index that gets the documents.")
@click.option(
    "--hosts", default="http://127.0.0.1:9200", show_default=True, metavar="URL,...",
    help="Nodes of the search cluster; the next one is asked when one does not answer.",
)  # fmt: skip
@click.option(
    "--filter", "condition", metavar="SQL",
    help="Only lines for which this holds, of the columns line, message, host: "
    "\"message LIKE '%error%'\".",
)  # fmt: skip
@click.option("--checkpoint", required=True, metavar="URI", help="Where the next run goes on.")
@click.option("--follow", is_flag=True, help="Go on until it is stopped, a batch a second.")
@max_offsets_option
@job_options
def index_lines(
    topic: str,
    index: str,
    hosts: str,
    condition: str | None,
    checkpoint: str,
    follow: bool,
    max_offsets: int | None,
    **shared: Any,
) -> int:
    """Index the new records of TOPIC."""
    job = settings("index-lines", shared)
    check_topics(job, topic)
    with job_session(job) as spark:
        lines = documents(stream(spark, job, topic, max_offsets))
        if condition:
            lines = lines.where(condition)
        if job.is_dry_run:
            count = waiting_offsets(spark, job, topic, checkpoint)
            job.summary(f"{count} offsets of {topic} wait for {index}", offsets=count)
            return 0
        send = bulk_sender(hosts.split(","), index)
        writer = lines.writeStream.foreachBatch(
            lambda batch, _number: batch.foreachPartition(send)
        ).option("checkpointLocation", checkpoint)
        if follow:
            writer.trigger(processingTime=FOLLOW_INTERVAL).start().awaitTermination()
            return 0
        count = run_available(writer)
        job.summary(f"{count} records of {topic} into {index}", records=count)
    return 0


def documents(records: DataFrame) -> DataFrame:
    """The id and the JSON text (`line`) of each record's document, and what a filter may ask."""
    text = F.col("value").cast("string")
    is_object = F.get_json_object(text, "$").startswith("{")
    own = F.to_json(
        F.struct(
            F.date_format("timestamp", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX").alias("@timestamp"),
            text.alias("message"),
        )
    )
    line = F.when(is_object, F.get_json_object(text, "$")).otherwise(own)
    return (
        records.where("value IS NOT NULL")
        .select(F.concat_ws("-", "topic", "partition", "offset").alias("id"), line.alias("line"))
        .withColumn("message", F.get_json_object("line", "$.message"))
        .withColumn("host", F.get_json_object("line", "$.host"))
    )


def bulk_sender(hosts: Sequence[str], index: str) -> Callable[[Iterable[Row]], None]:
    """What a task does with its rows."""

    def send(rows: Iterable[Row]) -> None:
        for body in _bulks(rows, index):
            _post(hosts, body)

    return send


def _bulks(rows: Iterable[Row], index: str) -> Iterator[bytes]:
    """Bodies of _bulk requests: an action and a document by turns, a line each."""
    lines: list[str] = []
    for row in rows:
        lines += (json.dumps({"index": {"_index": index, "_id": row.id}}), row.line)
        if len(lines) == 2 * BULK_DOCUMENTS:
            yield _body(lines)
            lines = []
    if lines:
        yield _body(lines)


def _body(lines: Sequence[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def _post(hosts: Sequence[str], body: bytes) -> None:
    failures = []
    for host in hosts:
        request = urllib.request.Request(
            f"{host}/_bulk", body, {"Content-Type": "application/x-ndjson"}
        )
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_S) as reply:
                told = json.load(reply)
        except urllib.error.HTTPError as error:
            text = error.read()[:SHOWN_CHARACTERS].decode(errors="replace")
            raise BulkError(f"{host}: {error.code} {text}") from None
        except OSError as error:
            failures.append(f"{host}: {error}")
            continue
        refused = [item["index"] for item in told["items"] if "error" in item["index"]]
        if refused:
            first = refused[0]
            raise BulkError(
                f"{len(refused)} documents refused, first {first['_id']}: {first['error']}"
            )
        return
    raise BulkError(f"no host answers: {'; '.join(failures)}")


if __name__ == "__main__":
    sys.exit(run_job(index_lines))
