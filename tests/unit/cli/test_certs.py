"""`headwater certs` on a cluster's folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.certs import certs
from headwater.cli.main import run_command
from headwater.local import cluster_file
from headwater.local.cluster_file import of_spec
from headwater.local.cluster_spec import ClusterSpec


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    cluster_file.save(tmp_path, of_spec(ClusterSpec(tmp_path, "abc", 2, 9092)))
    return tmp_path


def done(capsys: pytest.CaptureFixture[str], directory: Path, *words: str) -> Any:
    """The JSON document that a command prints."""
    code = run_command(certs, [*words, "--dir", str(directory), "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out)


def refused(capsys: pytest.CaptureFixture[str], directory: Path, *words: str) -> str:
    """The one line of a command that is refused."""
    assert run_command(certs, [*words, "--dir", str(directory)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


def test_every_broker_gets_a_certificate_once(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = done(capsys, directory, "create")["made"]
    assert [Path(file).name for file in made] == ["broker-0.pem", "broker-1.pem"]
    assert done(capsys, directory, "create") == {"made": []}
    found = done(capsys, directory, "list")
    assert found["rotation"] == "none" and len(found["authorities"]) == 1
    assert found["certificates"]["broker-0"]["hosts"] == ["127.0.0.1", "localhost"]
    assert done(capsys, directory, "renew") == {"renewed": []}


def test_a_client_gets_a_certificate(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done(capsys, directory, "create", "spark-job", "--host", "10.0.0.7")
    found = done(capsys, directory, "list")["certificates"]["spark-job"]
    assert (found["subject"], found["hosts"]) == ("CN=spark-job", ["10.0.0.7"])


def age(directory: Path) -> None:
    """Make every file 20 s older: brokers have read them."""
    for path in (directory / "security").iterdir():
        stat = path.stat()
        os.utime(path, (stat.st_atime - 20, stat.st_mtime - 20))


def test_three_runs_replace_the_authority(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done(capsys, directory, "create")
    before = done(capsys, directory, "list")
    steps = []
    for _ in range(3):
        steps.append(done(capsys, directory, "rotate")["rotation"])
        age(directory)
    assert steps == ["both-trusted", "reissued", "none"]
    after = done(capsys, directory, "list")
    assert after["authorities"] != before["authorities"]
    assert after["certificates"]["broker-0"]["sha256"] not in str(before)


def test_no_secret_is_printed(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["create"], ["list"], ["rotate"], ["rotate"], ["rotate"], ["renew"]):
        assert run_command(certs, [*words, "--dir", str(directory)]) == 0
        age(directory)
    out, err = capsys.readouterr()
    assert "PRIVATE" not in out + err and "step 3 of 3" in out


def test_a_step_waits_until_brokers_have_read_the_last_one(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done(capsys, directory, "create")
    done(capsys, directory, "rotate")
    assert "run this again in 15 s" in refused(capsys, directory, "rotate")
    assert done(capsys, directory, "list")["rotation"] == "both-trusted"


def test_one_command_takes_all_steps(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done(capsys, directory, "create")
    before = done(capsys, directory, "list")
    waited: list[float] = []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        age(directory)

    words = ["rotate", "--all", "--dir", str(directory)]
    assert run_command(certs, words, settings=pause) == 0
    assert "step 3 of 3" in capsys.readouterr().out
    assert [round(seconds) for seconds in waited] == [15, 15]
    after = done(capsys, directory, "list")
    assert after["rotation"] == "none" and after["authorities"] != before["authorities"]


def test_a_renewal_waits_for_the_rotation(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done(capsys, directory, "create")
    done(capsys, directory, "rotate")
    assert "headwater certs rotate" in refused(capsys, directory, "renew")


@pytest.mark.parametrize("name", ["../x", "a b", ".hidden", "ca", "authority", "näme"])
def test_a_name_that_is_no_file_of_a_leaf_is_refused(
    directory: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert "cannot be a certificate's name" in refused(capsys, directory, "create", name)
    assert not (directory / "security").exists()


def test_what_is_absent_is_named_with_the_remedy(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "headwater certs create" in refused(capsys, directory, "list")
    assert "--host goes with a NAME" in refused(capsys, directory, "create", "--host", "h")
    assert "holds no cluster" in refused(capsys, directory / "other", "list")
