"""The address that a broker on an executor advertises, and its rack."""

from __future__ import annotations

import pytest

from headwater_spark.cluster.executor_host import ExecutorHost, executor_host, is_loopback

EXECUTOR = ("java", "-cp", "jars", "org.apache.spark.executor.CoarseGrainedExecutorBackend")
LINK = "10.0.0.7"


def command(host: str) -> tuple[str, ...]:
    return (*EXECUTOR, "--executor-id", "3", "--hostname", host, "--cores", "3")


def test_a_broker_has_the_address_that_spark_has_for_its_executor() -> None:
    found = executor_host({}, command("node7.example"), LINK)
    assert found == ExecutorHost("node7.example", rack="node7.example")


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "::1", "[::1]", "localhost.localdomain"]
)
def test_an_address_that_other_machines_cannot_reach_is_not_advertised(host: str) -> None:
    assert is_loopback(host)
    assert executor_host({}, command(host), LINK).address == LINK


def test_everything_on_one_machine_may_be_loopback() -> None:
    assert executor_host({}, command("localhost"), "127.0.0.1").address == "localhost"


@pytest.mark.parametrize("words", [(), EXECUTOR, (*EXECUTOR, "--hostname")])
def test_without_a_host_name_the_links_address_is_advertised(words: tuple[str, ...]) -> None:
    assert executor_host({}, words, LINK) == ExecutorHost(LINK, rack=LINK)


def test_a_machines_own_settings_win() -> None:
    chosen = {"HEADWATER_ADVERTISED_HOST": "node7.public.example", "HEADWATER_RACK": "zone-b"}
    found = executor_host(chosen, command("node7.example"), LINK)
    assert found == ExecutorHost("node7.public.example", rack="zone-b")
    found = executor_host({"HEADWATER_RACK": "zone-b"}, command("node7.example"), LINK)
    assert found == ExecutorHost("node7.example", rack="zone-b")
