"""The shipped dashboard and alerts on a real Prometheus, over a real cluster."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from peers import free_port_block

from grafana_dashboard import dashboard
from headwater import Admin, Consumer, NewTopic, Producer
from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from suites import parts
from suites.parts import MissingPartError

pytestmark = [pytest.mark.integration, pytest.mark.integrations, pytest.mark.timeout(240)]
CONF = Path(__file__).resolve().parents[2] / "conf" / "prometheus"
RULES = CONF / "headwater.rules.yml"
TOPIC, GROUP = "flights", "delays"
WAIT_S = 60.0
VARIABLES = {"$__rate_interval": "30s", "$instance": ".*", "$topic": ".*", "$group": ".*"}
LATE = {
    "LastStableOffsetBlocked", "GroupSlow", "GroupStuck", "GroupGone", "GroupLosesRecordsSoon",
    "TieringSilent", "MirrorBehind",
}  # fmt: skip
"""Alerts that look back over many minutes."""
EMPTY_WITHOUT_CAUSE = re.compile("errors|throttled|tier|epochs|last_stable|two_phase|exporter")
"""Families without a sample in a cluster in which nothing is wrong and nothing is tiered."""


@pytest.fixture(scope="module")
def programs() -> Path:
    try:
        return parts.prometheus_programs()
    except MissingPartError as error:
        pytest.skip(str(error))


def promtool(programs: Path, *arguments: str) -> None:
    command = [str(programs / "promtool"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_shipped_files_are_what_prometheus_takes(programs: Path) -> None:
    promtool(programs, "check", "config", str(CONF / "prometheus.yml"))
    promtool(programs, "check", "rules", str(RULES))


Series = list[dict[str, str]]
OF_GROUP = f'{{consumergroup="{GROUP}", topic="{TOPIC}"}}'
OF_PARTITION = f'{{topic="{TOPIC}", partition="0"}}'
OF_BOTH = f'{{consumergroup="{GROUP}", topic="{TOPIC}", partition="0"}}'
OF_DISK = '{instance="b0", log_dir="/d"}'
OF_MIRROR = f'{{mirror="1", topic="{TOPIC}", partition="0"}}'
COMMITTED = f"kafka_consumergroup_current_offset{OF_BOTH}"
COMMITTED_SUM = f"kafka_consumergroup_current_offset_sum{OF_GROUP}"
LAG = f"kafka_consumergroup_lag_sum{OF_GROUP}"
MEMBERS = f'kafka_consumergroup_members{{consumergroup="{GROUP}"}}'
UP = 'up{job="headwater-broker", instance="b0"}'
USABLE = f"headwater_log_dir_usable_bytes{OF_DISK}"
DISK = f"headwater_log_dir_disk_bytes{OF_DISK}"
OLDEST = f"kafka_topic_partition_oldest_offset{OF_PARTITION}"


def series(*rows: tuple[str, str]) -> Series:
    return [{"series": name, "values": values} for name, values in rows]


STORIES: dict[str, Series] = {
    "BrokerDown": series((UP, "1 0x10")),
    "PartitionOffline": series(("headwater_offline_partitions", "1x10")),
    "UncleanElection": series(("headwater_unclean_elections_total", "0x5 1x10")),
    "DiskFull": series((USABLE, "9x10"), (DISK, "100x10")),
    "LastStableOffsetBlocked": series((f"headwater_last_stable_offset_lag{OF_PARTITION}", "5x40")),
    "GroupStuck": series((LAG, "10x40"), (COMMITTED_SUM, "7x40"), (MEMBERS, "1x40")),
    "GroupGone": series((LAG, "10x40"), (MEMBERS, "0x40")),
    "GroupSlow": series((LAG, "0+60x40"), (COMMITTED_SUM, "0+10x40"), (MEMBERS, "1x40")),
    "GroupLosesRecordsSoon": series((COMMITTED, "100000x40"), (OLDEST, "0+2400x40")),
    "TieringSilent": series(
        (f'headwater_tier_reported_timestamp_seconds{{topic="{TOPIC}"}}', "0x40")
    ),
    "MirrorStopped": series((f"headwater_mirror_partition_stopped{OF_MIRROR}", "0x5 1x10")),
    "MirrorFailing": series(('headwater_mirror_bucket_failing{mirror="1", bucket="0"}', "1x10")),
    "MirrorBehind": series(
        (f"headwater_mirror_lag_offsets{OF_MIRROR}", "5x40"),
        (f"headwater_mirror_position_offset{OF_MIRROR}", "7x40"),
    ),
}
HEALTHY = series(
    (UP, "1x40"),
    ("headwater_active_controller", "1x40"),
    ("headwater_offline_partitions", "0x40"),
    (USABLE, "80x40"),
    (DISK, "100x40"),
    (LAG, "10 0 10 0 10 0 10 0x33"),
    (COMMITTED_SUM, "0+10x40"),
    (COMMITTED, "0+10x40"),
    (OLDEST, "0x40"),
    (MEMBERS, "2x40"),
    (f"headwater_mirror_partition_stopped{OF_MIRROR}", "0x40"),
    (f"headwater_mirror_lag_offsets{OF_MIRROR}", "5x40"),
    (f"headwater_mirror_position_offset{OF_MIRROR}", "0+10x40"),
)


def test_alerts_fire_and_stay_silent(programs: Path, tmp_path: Path) -> None:
    """Series as brokers and the exporter give them, by Prometheus' own test of rules."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    names = [row["alert"] for group_rules in groups for row in group_rules["rules"]]
    tests: list[dict[str, Any]] = []
    for name, given in STORIES.items():
        firing = f'count(ALERTS{{alertname="{name}", alertstate="firing"}}) > bool 0'
        at = "40m" if name in LATE else "10m"
        found = [{"expr": firing, "eval_time": at, "exp_samples": [{"labels": "{}", "value": 1}]}]
        tests.append({"interval": "1m", "input_series": given, "promql_expr_test": found})
    quiet = [{"eval_time": "40m", "alertname": name, "exp_alerts": []} for name in names]
    tests.append({"interval": "1m", "input_series": HEALTHY, "alert_rule_test": quiet})
    document = {"rule_files": [str(RULES)], "evaluation_interval": "30s", "tests": tests}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(document))
    promtool(programs, "test", "rules", str(tmp_path / "tests.yml"))


until = partial(LocalCluster.wait_until, timeout_s=WAIT_S)


class Prometheus:
    """A running Prometheus."""

    def __init__(self, address: str) -> None:
        self._address = address

    def get(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"http://{self._address}/api/v1/{path}?{query}") as reply:
            return json.load(reply)["data"]

    def query(self, text: str) -> list[Any]:
        """The samples of an instant query; Prometheus' refusal fails the test."""
        found: list[Any] = self.get("query", query=text)["result"]
        return found

    def firing(self) -> set[str]:
        """Names of the alerts that fire."""
        alerts = self.get("alerts")["alerts"]
        return {row["labels"]["alertname"] for row in alerts if row["state"] == "firing"}


@contextmanager
def process(command: list[str], log: Path) -> Iterator[None]:
    with log.open("w") as out:
        running = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            running.terminate()
            running.wait(20)


@contextmanager
def prometheus(
    programs: Path, folder: Path, port: int, targets: dict[str, list[str]]
) -> Iterator[Prometheus]:
    """One that scrapes each second, with the shipped rules; alerts wait a second at most."""
    rules = re.sub(r"for: \d+[smh]", "for: 1s", RULES.read_text())
    (folder / "headwater.rules.yml").write_text(rules)
    scrapes = [
        {"job_name": name, "static_configs": [{"targets": addresses}]}
        for name, addresses in targets.items()
    ]
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config = {"global": every, "rule_files": ["headwater.rules.yml"], "scrape_configs": scrapes}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{port}"
    command = [
        str(programs / "prometheus"), f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address={address}",
    ]  # fmt: skip
    with process(command, folder / "prometheus.log"):
        found = Prometheus(address)

        def answers() -> bool:
            try:
                return bool(found.query("vector(1)"))
            except OSError:
                return False

        until(answers, "Prometheus did not start")
        yield found


def test_each_query_has_an_answer_and_a_dead_broker_is_told(programs: Path, tmp_path: Path) -> None:
    port = next_base_port(tmp_path)
    with LocalCluster(tmp_path / "cluster", port, brokers=2) as cluster:
        with Admin(cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, 2, 2)])
        with Producer(cluster.bootstrap, transactional_id="t") as producer, producer.transaction():
            producer.send(TOPIC, b"x")
        with Producer(cluster.bootstrap) as producer:
            for number in range(200):
                producer.send(TOPIC, b"%d" % number, key=b"%d" % number)
        free = free_port_block()
        exporter, web = f"127.0.0.1:{free}", free + 1
        targets = {
            "headwater-broker": [f"127.0.0.1:{port + 200 + number}" for number in range(2)],
            "headwater-lag": [exporter],
        }
        own = [sys.executable, "-m", "headwater", "lag-exporter", "--listen", exporter]
        own += ["--bootstrap-server", cluster.bootstrap]
        with (
            Consumer(
                TOPIC,
                bootstrap_servers=cluster.bootstrap,
                group_id=GROUP,
                auto_offset_reset="earliest",
            ) as consumer,
            process(own, tmp_path / "exporter.log"),
            prometheus(programs, tmp_path, web, targets) as found,
        ):
            assert consumer.poll(timeout_ms=20_000, max_records=50)
            consumer.commit()
            lag = f'kafka_consumergroup_lag_sum{{consumergroup="{GROUP}"}} > 0'
            until(lambda: bool(found.query(lag)), "no lag was scraped")
            until(lambda: len(found.query("headwater_leaders[30s]")) == 2, "brokers not scraped")
            time.sleep(3)  # rates need two scrapes
            for panel in dashboard()["panels"]:
                for target in panel.get("targets", ()):
                    text = target["expr"]
                    for name, value in VARIABLES.items():
                        text = text.replace(name, value)
                    rows = found.query(text)
                    assert rows or EMPTY_WITHOUT_CAUSE.search(text), f"no sample: {text}"
            assert not found.firing() & {"BrokerDown", "PartitionOffline", "NoController"}
            cluster.kill_broker(1)
            until(lambda: "BrokerDown" in found.firing(), "BrokerDown did not fire")
            until(lambda: "UnderReplicated" in found.firing(), "UnderReplicated did not fire")
