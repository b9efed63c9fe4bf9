"""Writes the Grafana dashboard `conf/grafana/headwater.json` (`make docs`).

A panel is one entry here; `tests/unit/docs` fails when the file is not what they say, and
 `tests/integration/test_prometheus.py` runs each query on a real Prometheus.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).resolve().parents[1] / "conf" / "grafana" / "headwater.json"
COLUMNS = 24
HEIGHT = 8
STAT_HEIGHT = 4
AT = 'instance=~"$instance"'
OF = 'topic=~"$topic"'


class Panel(NamedTuple):
    """One panel; `series`: legend -> query."""

    title: str
    series: dict[str, str]
    unit: str = "short"
    text: str = ""
    kind: str = "timeseries"
    bad_above: float | None = None
    """A value above it is shown red."""


def rate(metric: str, *by: str, where: str = AT) -> str:
    """Per second, summed by these labels."""
    return f"sum by ({', '.join(by)}) (rate({metric}{{{where}}}[$__rate_interval]))"


def quantile(metric: str, share: float, *by: str, where: str = AT) -> str:
    """The quantile of a histogram."""
    return f"histogram_quantile({share}, {rate(metric + '_bucket', 'le', *by, where=where)})"


def stat(
    title: str, query: str, text: str, bad_above: float | None = 0, unit: str = "short"
) -> Panel:
    """One number."""
    return Panel(title, {title: query}, unit, text, "stat", bad_above)


OLDEST = "headwater_oldest_open_transaction_seconds"
HELD = "headwater_last_stable_offset_lag"
HOT = 'api=~"Produce|Fetch", ' + AT
ROWS: dict[str, list[Panel]] = {
    "Health": [
        stat("Brokers down", 'count(up{job="headwater-broker"} == 0) or vector(0)', "No answer."),
        stat(
            "Offline partitions",
            "sum(headwater_offline_partitions)",
            "Without a leader: they take no writes and give no records.",
        ),
        stat(
            "Under min ISR",
            "sum(headwater_under_min_isr_partitions)",
            "acks=all is refused there.",
        ),
        stat(
            "Under replicated",
            "sum(headwater_under_replicated_partitions)",
            "A follower is down or behind.",
        ),
        stat(
            "Controllers",
            "sum(headwater_active_controller)",
            "1 in a healthy cluster.",
            bad_above=1,
        ),
        stat(
            "Hanging transactions",
            "sum(headwater_partitions_with_late_transactions)",
            "They block readers of read_committed.",
        ),
    ],
    "Traffic": [
        Panel(
            "Records in", {"{{topic}}": rate("headwater_topic_records_in_total", "topic", where=OF)}
        ),
        Panel(
            "Bytes in",
            {"{{topic}}": rate("headwater_topic_bytes_in_total", "topic", where=OF)},
            "Bps",
        ),
        Panel(
            "Bytes out",
            {"{{topic}}": rate("headwater_topic_bytes_out_total", "topic", where=OF)},
            "Bps",
            "To consumers and followers.",
        ),
        Panel("Requests", {"{{api}}": rate("headwater_requests_total", "api")}, "reqps"),
        Panel(
            "Errors in replies",
            {"{{api}} {{error}}": rate("headwater_request_errors_total", "api", "error")},
            "reqps",
        ),
        Panel(
            "Throttled",
            {"{{quota}}": rate("headwater_throttled_seconds_total", "quota")},
            "s",
            "Seconds of muted clients per second.",
        ),
    ],
    "Latency": [
        Panel(
            "Produce and Fetch, p99",
            {"{{api}}": quantile("headwater_request_seconds", 0.99, "api", where=HOT)},
            "s",
            "A Fetch includes the wait for data.",
        ),
        Panel(
            "Stages of Produce, p99",
            {
                "{{stage}}": quantile(
                    "headwater_request_stage_seconds", 0.99, "stage", where='api="Produce", ' + AT
                )
            },
            "s",
        ),
        Panel(
            "fsync, p99",
            {"{{instance}}": quantile("headwater_log_flush_seconds", 0.99, "instance")},
            "s",
        ),
    ],
    "Brokers": [
        Panel(
            "Idle share of the event loop",
            {"{{instance}}": f"headwater_loop_idle_ratio{{{AT}}}"},
            "percentunit",
            "Below 0.2 for minutes: spread the leaders over more brokers.",
        ),
        Panel(
            "Longest busy stretch of the event loop",
            {"{{instance}}": f"headwater_loop_turn_seconds{{{AT}}}"},
            "s",
        ),
        Panel("Memory", {"{{instance}}": f"process_resident_memory_bytes{{{AT}}}"}, "bytes"),
        Panel("Connections", {"{{instance}}": f"headwater_connections{{{AT}}}"}),
        Panel(
            "Disk free",
            {"{{instance}} {{log_dir}}": f"headwater_log_dir_usable_bytes{{{AT}}}"},
            "bytes",
        ),
        Panel("Leaders", {"{{instance}}": f"headwater_leaders{{{AT}}}"}),
        Panel(
            "ISR changes",
            {
                "shrinks {{instance}}": rate("headwater_isr_shrinks_total", "instance"),
                "expands {{instance}}": rate("headwater_isr_expands_total", "instance"),
            },
        ),
    ],
    "Groups": [
        Panel(
            "Lag",
            {
                "{{group}} {{topic}}": "max by (group, topic) "
                f'(headwater_group_lag{{{OF}, group=~"$group"}})'
            },
            text="Records that a group has not committed, by brokers.",
        ),
        Panel(
            "Lag, by the exporter",
            {
                "{{consumergroup}} {{topic}}": "max by (consumergroup, topic) "
                f'(kafka_consumergroup_lag_sum{{{OF}, consumergroup=~"$group"}})'
            },
            text="headwater lag-exporter, of any Kafka cluster.",
        ),
        Panel(
            "Members",
            {"{{group}}": 'max by (group) (headwater_group_members{group=~"$group"})'},
        ),
    ],
    "Transactions": [
        Panel("Open", {"{{instance}}": f"headwater_open_transactions{{{AT}}}"}),
        Panel(
            "Oldest open",
            {"two phase: {{two_phase}}": f"max by (two_phase) ({OLDEST})"},
            "s",
        ),
        Panel(
            "Readers held back",
            {"{{topic}}-{{partition}}": f"max by (topic, partition) ({HELD}{{{OF}}})"},
            text="Offsets between the last stable offset and the high watermark.",
        ),
        Panel(
            "Markers",
            {"due {{instance}}": f"headwater_transaction_markers_due{{{AT}}}"},
        ),
        Panel("Epochs of Spark sinks", {"{{state}}": "sum by (state) (headwater_epochs)"}),
    ],
    "Delta tables": [
        Panel(
            "Behind the log",
            {"{{topic}}": f"max by (topic) (headwater_tier_behind_seconds{{{OF}}})"},
            "s",
        ),
        Panel("Rows", {"{{topic}}": f"max by (topic) (headwater_tier_rows{{{OF}}})"}),
        Panel("Bytes", {"{{topic}}": f"max by (topic) (headwater_tier_bytes{{{OF}}})"}, "bytes"),
        stat(
            "Topics whose tiering failed",
            "sum(max by (topic) (headwater_tier_failed))",
            "headwater tier status shows the error.",
        ),
    ],
}


def panels() -> Iterator[dict[str, Any]]:
    """Grafana's panels, laid out row by row."""
    number, y = 1, 0
    for title, row in ROWS.items():
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "panels": [],
               "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y}}  # fmt: skip
        number, y, x, height = number + 1, y + 1, 0, 0
        for panel in row:
            is_stat = panel.kind == "stat"
            width = COLUMNS // 6 if is_stat else COLUMNS // 3
            if x + width > COLUMNS:
                x, y = 0, y + height
            height = STAT_HEIGHT if is_stat else HEIGHT
            yield _panel(panel, number, {"h": height, "w": width, "x": x, "y": y})
            number, x = number + 1, x + width
        y += height


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.bad_above is not None:
        steps.append({"color": "red", "value": panel.bad_above + 0.5})
    targets = [
        {"refId": chr(65 + at), "expr": query, "legendFormat": legend}
        for at, (legend, query) in enumerate(panel.series.items())
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": place,
        "targets": targets,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}},
            "overrides": [],
        },
    }


def _variable(name: str, metric: str) -> dict[str, Any]:
    query = f"label_values({metric}, {name})"
    return {
        "name": name, "type": "query", "label": name, "query": query, "definition": query,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "includeAll": True, "multi": True, "allValue": ".*", "refresh": 2, "sort": 1,
        "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip


def dashboard() -> dict[str, Any]:
    """The document that Grafana imports."""
    return {
        "uid": "headwater",
        "title": "Headwater",
        "tags": ["headwater", "kafka"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                _variable("instance", "headwater_leaders"),
                _variable("topic", "headwater_topic_records_in_total"),
                _variable("group", "headwater_group_lag"),
            ]
        },
        "panels": list(panels()),
    }  # fmt: skip


def text() -> str:
    """The file's content."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
