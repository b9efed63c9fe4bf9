"""A JVM's stderr goes into a log; an error of Spark is shown as one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError, PythonException
from pyspark.sql import SparkSession

from headwater.local.cluster_spec import ClusterSpec
from headwater_spark.cluster.launcher import SparkLauncher
from headwater_spark.spark_session import (
    SparkGoneError,
    SparkJobError,
    SparkStartError,
    cause,
    job_errors,
    last_output_line,
    start_errors,
    stderr_into,
)

SPEAKS = (sys.executable, "-c", "import sys; print(sys.argv[1], file=sys.stderr)")


def test_the_stderr_of_child_processes_goes_to_the_log_inside_the_block(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "spark.log"
    log.write_text("before\n")
    with stderr_into(log):
        subprocess.run([*SPEAKS, "noise"], check=True)
    subprocess.run([*SPEAKS, "after"], check=True)
    assert log.read_text() == "before\nnoise\n"
    assert capfd.readouterr().err == "after\n"


TRACE = (
    "\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)\n"
    "    at py4j.Gateway.invoke(Gateway.java:238)\n"
    "\t... 5 more\n"
)


@pytest.mark.parametrize(
    ("said", "last"),
    [
        (f"WARN Utils\nMaster must start with local\n{TRACE}", "Master must start with local"),
        (
            f"An error occurred.\n: Asked to run with 0 threads\n{TRACE}\n",
            "Asked to run with 0 threads",
        ),
        (TRACE, "it printed no error"),
        ("", "it printed no error"),
    ],
)
def test_the_last_output_line_is_not_of_a_stack_trace(said: str, last: str) -> None:
    assert last_output_line(said) == last


REFUSAL = f"An error occurred.\n: Asked to run locally with 0 threads\n{TRACE}"


def test_a_master_that_java_refuses_is_an_error_of_one_line(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    with pytest.raises(SparkStartError) as caught, start_errors("local[0]", log):
        raise Py4JError(REFUSAL)
    assert str(caught.value) == (
        f"Spark did not start on local[0]: Asked to run locally with 0 threads (log: {log})"
    )


def test_the_error_of_a_jvm_that_ends_at_its_start_comes_from_its_log(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text(f"WARN Utils\nUnrecognized option: -Xnonsense\n{TRACE}")
    words = r"start on local\[2\]: Unrecognized option: -Xnonsense"
    with pytest.raises(SparkStartError, match=words), start_errors("local[2]", log):
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})


def test_up_shows_why_spark_did_not_start(tmp_path: Path) -> None:
    def refused(*_: Any, **__: Any) -> SparkSession:
        raise Py4JError(REFUSAL)

    spec = cast(ClusterSpec, SimpleNamespace(directory=tmp_path))
    launcher = SparkLauncher(spec, "local[0]", lambda: None, open_session=refused)
    with pytest.raises(SparkStartError) as caught:
        launcher.start(lambda *_: None)
    assert str(caught.value) == (
        "Spark did not start on local[0]: Asked to run locally with 0 threads"
        f" (log: {tmp_path}/logs/supervisor.log)"
    )


WORKER = "\nAn exception was thrown from the Python worker:\n"
PYTHON = 'Traceback (most recent call last):\n  File "tier_task.py", line 6, in run\n    raise it\n'
JOB = "Job aborted: Task 0 failed 1 times: Python worker exited unexpectedly"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            f"{WORKER}headwater.errors.KafkaError: t-0\nat 7\n",
            "headwater.errors.KafkaError: t-0 at 7",
        ),
        (f"{WORKER}{PYTHON}ValueError: no\n", "ValueError: no"),
        (f"An error occurred while calling o1.c.\n: {JOB}\n{TRACE}: no\n", JOB),
        ("Connection reset", "Connection reset"),
        ("", ""),
    ],
)
def test_the_cause_of_a_failed_job_is_no_stack_trace(said: str, expected: str) -> None:
    assert cause(said) == expected


def spark_that(is_stopped: bool | Exception) -> SparkSession:
    """A session that has ended, or not, or whose JVM is gone."""

    def stopped() -> bool:
        if isinstance(is_stopped, Exception):
            raise is_stopped
        return is_stopped

    context = SimpleNamespace(isStopped=stopped)
    java = SimpleNamespace(sc=lambda: context)
    return cast(SparkSession, SimpleNamespace(sparkContext=SimpleNamespace(_jsc=java)))


def test_a_failed_job_is_not_the_end_of_spark() -> None:
    with (
        pytest.raises(SparkJobError, match=r"^tiering t: headwater\.errors\.KafkaError: t-0$"),
        job_errors(spark_that(False), "tiering t"),
    ):
        raise PythonException(message=f"{WORKER}headwater.errors.KafkaError: t-0\n")


@pytest.mark.parametrize("ended", [True, ConnectionRefusedError("no JVM"), Py4JError("gone")])
def test_a_spark_that_has_ended_has_an_error_of_its_own(ended: bool | Exception) -> None:
    with (
        pytest.raises(SparkGoneError, match=r"^tiering t: the Spark application has ended: start"),
        job_errors(spark_that(ended), "tiering t"),
    ):
        raise ConnectionRefusedError(111, "Connection refused")
