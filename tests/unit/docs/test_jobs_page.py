"""The schedules of docs/jobs.md: cron, Airflow and Databricks would start scripts that exist, with
options that they have."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import click
import pytest
import yaml

from backfill import backfill
from bronze_to_silver import bronze_to_silver
from compact import compact
from docs_pages import DOCS
from enrich import enrich

COMMANDS = {f"{c.name}.py": c for c in (backfill, bronze_to_silver, compact, enrich)}
PAGE = (DOCS / "jobs.md").read_text()
FIELD = re.compile(r"(\*|\d+(-\d+)?)(/\d+)?(,\d+)*")
SPARK_OPTION = "--master"


def block(head: str) -> str:
    """The first code block below a heading."""
    found = re.search(rf"^## {head}\n.*?^```\w*\n(.*?)^```", PAGE, re.S | re.M)
    assert found is not None, head
    return found[1]


def checked(script: str, arguments: Sequence[str]) -> dict[str, Any]:
    """The parameters of a script that is started so. Raises click.UsageError for wrong ones."""
    command = COMMANDS[script.rpartition("/")[2]]
    parameters: dict[str, Any] = command.make_context(command.name, list(arguments)).params
    return parameters


def submitted(words: Sequence[str]) -> tuple[str, list[str]]:
    """The script and its arguments in a command with spark-submit."""
    at = next(i for i, word in enumerate(words) if word.endswith("spark-submit")) + 1
    while words[at] == SPARK_OPTION:
        at += 2
    return words[at], list(words[at + 1 :])


def test_the_crontab_is_one() -> None:
    scripts = []
    for line in block("cron").splitlines():
        if re.match(r"[A-Z_]+=", line):
            continue
        *fields, command = line.split(None, 5)
        assert len(fields) == 5 and all(FIELD.fullmatch(field) for field in fields), line
        assert "%" not in command, "cron makes a line's end of it"
        words = shlex.split(command)
        assert ">>" in words
        script, arguments = submitted(words[: words.index(">>")])
        scripts.append(script)
        checked(script, arguments)
    assert scripts == [
        "/opt/headwater/jobs/bronze_to_silver.py", "/opt/headwater/jobs/compact.py",
    ]  # fmt: skip


class Stub:
    """A class of Airflow: it keeps what it is made of."""

    made: list[Stub]

    def __init__(self, *names: str, **options: Any) -> None:
        self.names, self.options = names, options
        self.made.append(self)

    def __enter__(self) -> Stub:
        return self

    def __exit__(self, *_: object) -> None:
        """Airflow's block of a DAG."""

    def __rshift__(self, other: Stub) -> Stub:
        return other


def test_the_dag_starts_scripts_with_their_options(monkeypatch: pytest.MonkeyPatch) -> None:
    Stub.made = []
    spark, bash = "airflow.providers.apache.spark.operators", "airflow.providers.standard.operators"
    names = {
        "airflow": "DAG",
        f"{spark}.spark_submit": "SparkSubmitOperator",
        f"{bash}.bash": "BashOperator",
    }
    for name, attribute in names.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            known = sys.modules.get(".".join(parts[:end])) or ModuleType(".".join(parts[:end]))
            monkeypatch.setitem(sys.modules, known.__name__, known)
        monkeypatch.setattr(sys.modules[name], attribute, type(attribute, (Stub,), {}), False)
    exec(compile(block("Airflow"), "docs/jobs.md", "exec", dont_inherit=True), {})
    dag, silver, enriched = Stub.made
    assert dag.options["max_active_runs"] == 1 and dag.options["catchup"] is False
    found = checked(silver.options["application"], silver.options["application_args"])
    assert found["value_schema"] == "carrier STRING, flight INT"
    found = checked(*submitted(shlex.split(enriched.options["bash_command"])))
    assert found["checkpoint"] == "s3a://lake/checkpoints/flights-named"


def test_the_databricks_job_starts_a_script_with_its_options() -> None:
    (job,) = yaml.safe_load(block("Databricks jobs"))["resources"]["jobs"].values()
    assert job["max_concurrent_runs"] == 1
    # Quartz has seconds first, and one of the two kinds of days is "?".
    fields = job["schedule"]["quartz_cron_expression"].split()
    assert len(fields) == 6 and [fields[3], fields[5]].count("?") == 1
    (task,) = job["tasks"]
    script = task["spark_python_task"]
    found = checked(script["python_file"], script["parameters"])
    assert found["bootstrap_server"] == "broker-1:9092"


def test_the_commands_of_the_page_start_scripts_with_their_options() -> None:
    found = re.search(r"^```bash\n(.*?)^```", PAGE, re.S | re.M)
    assert found is not None
    lines = found[1].replace("\\\n", " ").splitlines()
    scripts = [submitted(shlex.split(line)) for line in lines if line.startswith("spark-submit")]
    assert {script for script, _ in scripts} == {f"jobs/{name}" for name in COMMANDS}
    for script, arguments in scripts:
        checked(script, arguments)


def test_an_option_that_a_script_lacks_is_seen() -> None:
    with pytest.raises(click.UsageError, match="--value-schemas"):
        checked("bronze_to_silver.py", ["a", "b", "--value-schemas", "x"])
