"""The properties of a mirror: names, values, and what a wrong one is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from headwater.cli.mirror import reverse
from headwater.config.java_properties import parse_java_properties
from headwater.errors import UsageError
from headwater.mirror.config import parse_config, reversed_properties

BOTH = {"source.bootstrap.servers": "a:1", "target.bootstrap.servers": "b:2"}


def test_the_least_file_names_both_clusters() -> None:
    config = parse_config(BOTH)
    assert (config.source.bootstrap, config.target.bootstrap) == ([("a", 1)], [("b", 2)])
    assert (config.mirror_id, config.buckets, config.commit_s) == ("1", 4, 0.2)
    assert "anything" in config.topics and "any group" in config.groups
    assert config.group_id == "__mirror.1"


def test_options_go_to_the_side_that_they_name() -> None:
    config = parse_config(
        {
            **BOTH,
            "source.client.id": "reader", "source.request.timeout.ms": "5",
            "target.security.protocol": "SASL_PLAINTEXT", "target.sasl.mechanism": "PLAIN",
            "target.sasl.username": "u", "target.sasl.password": "secret",
            "commit.interval.ms": "50", "mirror.id": "dr_1", "source.fetch.max.bytes": "9",
            "source.auto.offset.reset": "latest", "target.existing": "append",
        }
    )  # fmt: skip
    assert config.source.options.client_id == "reader"
    assert config.source.options.request_timeout_ms == 5
    assert config.target.options.request_timeout_ms == 30_000
    assert "PLAIN" in repr(config.target.options.credentials)
    assert "secret" not in repr(config)
    assert (config.commit_s, config.fetch_bytes) == (0.05, 9)
    assert config.starts_latest and config.appends


def test_names_of_mirror_maker_are_understood() -> None:
    config = parse_config(
        {**BOTH, "tasks.max": "7", "topics.exclude": "x.*", "queue.enqueue.timeout.ms": "-1"}
    )
    assert config.buckets == 7
    assert "x1" not in config.topics and "y" in config.topics
    old = parse_config({**BOTH, "num.producers": "2", "whitelist": "a,b"})
    assert old.buckets == 2 and "a" in old.topics and "c" not in old.topics


def test_the_other_direction_swaps_the_sides_and_keeps_the_rest() -> None:
    given = {
        **BOTH, "mirror.id": "ab", "topics": "t", "metrics.listen": "127.0.0.1:1",
        "target.sasl.username": "u", "target.security.protocol": "SASL_PLAINTEXT",
        "target.sasl.mechanism": "PLAIN", "target.sasl.password": "p",
        "source.auto.offset.reset": "latest",
    }  # fmt: skip
    config = parse_config(given)
    back = reversed_properties(config, "ba")
    assert back["source.bootstrap.servers"] == "b:2" and back["target.bootstrap.servers"] == "a:1"
    assert back["source.sasl.username"] == "u" and back["source.auto.offset.reset"] == "latest"
    assert back["mirror.id"] == "ba" and back["topics"] == "t" and "metrics.listen" not in back
    assert reversed_properties(parse_config(back), "ab") == {
        k: v for k, v in given.items() if k != "metrics.listen"
    }
    with pytest.raises(UsageError, match="needs one"):
        reversed_properties(config, "ab")


def test_the_file_of_the_other_direction_is_private(tmp_path: Path) -> None:
    """A redirected output would have the shell's umask."""
    ab, ba = tmp_path / "ab.properties", tmp_path / "ba.properties"
    login = {
        "target.security.protocol": "SASL_PLAINTEXT", "target.sasl.mechanism": "PLAIN",
        "target.sasl.username": "u", "target.sasl.password": "hunter2", "topics": "a\\\\d",
    }  # fmt: skip
    ab.write_text("".join(f"{k}={v}\n" for k, v in {**BOTH, **login}.items()))
    command = ["mirror", "reverse", "--config", str(ab), "--id", "ba"]
    printed = CliRunner().invoke(reverse, command[2:])
    assert isinstance(printed.exception, UsageError) and "--out FILE" in str(printed.exception)
    assert "hunter2" not in printed.output + str(printed.exception)
    assert CliRunner().invoke(reverse, [*command[2:], "--out", str(ba)]).exit_code == 0
    assert ba.stat().st_mode & 0o777 == 0o600
    back = parse_java_properties(ba.read_text(), str(ba))
    assert back["source.sasl.password"] == "hunter2" and back["topics"] == "a\\d"
    missing = CliRunner().invoke(reverse, [*command[2:], "--out", str(tmp_path / "no" / "x")])
    assert isinstance(missing.exception, UsageError) and "--out" in str(missing.exception)
    ab.write_text("".join(f"{k}={v}\n" for k, v in BOTH.items()))
    assert "source.bootstrap.servers=b:2" in CliRunner().invoke(reverse, command[2:]).output


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"source.bootstrap.servers": ""}, "source.bootstrap.servers is missing"),
        ({"source.bootstrap.servers": "b:2"}, "source and target are one cluster"),
        ({"topics": "a", "topics.deny": "b"}, "topics and topics.deny are both given"),
        ({"topics": "a", "whitelist": "b"}, "whitelist and topics are both given"),
        ({"topic": "a"}, "no property 'topic': did you mean topics"),
        ({"bootstrap.servers": "a"}, "did you mean source.bootstrap.servers or target.boot"),
        ({"clusters": "a, b"}, "a mirror has one direction"),
        ({"a->b.enabled": "true"}, "a mirror has one direction"),
        ({"commit.interval.ms": "soon"}, "commit.interval.ms: value 'soon' is not valid"),
        ({"source.request.timeout.ms": "0"}, "request.timeout.ms: value '0' is not valid"),
        ({"mirror.id": "a b"}, "mirror.id is 'a b'"),
        ({"target.existing": "merge"}, "target.existing is 'merge': use stop or append"),
        ({"queue.enqueue.timeout.ms": "100"}, "drops nothing; use -1"),
        ({"source.sasl.passwort": "x"}, "source: unknown option sasl.passwort"),
        ({"source.security.protocol": "TLS"}, "source: "),
    ],
)
def test_a_wrong_property_is_named_with_its_remedy(more: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_config({**BOTH, **more})
    assert told in str(caught.value)
