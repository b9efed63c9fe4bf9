"""What the scripts of jobs/ share: the summary line, settings, waiting offsets."""

from __future__ import annotations

import json

import click
import pytest

from headwater.cli.main import run_command
from headwater.errors import UsageError
from headwater_spark.scheduled_job import JobSettings, job_options, settings
from headwater_spark.spark_session import SparkJobError


class Seconds:
    """A clock that stands at a moment."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def monotonic(self) -> float:
        return self.now_s


def job(*, is_json: bool = False, is_dry_run: bool = False) -> JobSettings:
    return JobSettings("copy", "h:1", None, is_dry_run, is_json, Seconds(13.26), 10.0)  # type: ignore[arg-type]


def test_the_summary_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    job().summary("5 records of a into b", records=5)
    job(is_dry_run=True).summary("5 offsets of a wait", offsets=5)
    job(is_json=True).summary("5 records of a into b", records=5)
    plain, dry, document = capsys.readouterr().out.splitlines()
    assert plain == "copy: 5 records of a into b, 3.3 s"
    assert dry == "copy: dry run: 5 offsets of a wait, 3.3 s"
    assert json.loads(document) == {"job": "copy", "dry_run": False, "seconds": 3.3, "records": 5}


def test_exit_codes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    failure: list[Exception] = []

    @click.command("copy")
    @job_options
    def copy(**shared: object) -> int:
        found = settings("copy", shared)
        assert (found.servers, found.is_dry_run, found.is_json) == ("h:1,h:2", True, False)
        if failure:
            raise failure.pop()
        return 0

    arguments = ["--bootstrap-server", "h:1,h:2", "--dry-run"]
    assert run_command(copy, arguments, "copy.py") == 0
    assert run_command(copy, [*arguments, "--no-such"], "copy.py") == 2
    failure.append(UsageError("two\nlines"))
    assert run_command(copy, arguments, "copy.py") == 2
    failure.append(SparkJobError("gone"))
    assert run_command(copy, arguments, "copy.py") == 1
    told = capsys.readouterr()
    assert told.out == "" and told.err.splitlines()[-2:] == [
        "headwater: two lines",
        "headwater: gone",
    ]
    monkeypatch.setenv("HEADWATER_BOOTSTRAP_SERVERS", "h:1,h:2")
    assert run_command(copy, ["--dry-run"], "copy.py") == 0
