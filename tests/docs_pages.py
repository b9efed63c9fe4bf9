"""Generates the parts of `docs/` that come from the code, so that they cannot go stale.

`make docs` (`python tests/docs_pages.py`) rewrites the blocks between `<!-- NAME:begin -->` and
`<!-- NAME:end -->`; `tests/unit/docs` fails when a block is not what the code says.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

from prometheus_client.core import HistogramMetricFamily, Metric

import grafana_dashboard
from headwater.config.keys import BROKER_KEYS, TOPIC_KEYS
from headwater.config.row import ConfigKey
from headwater.config.rows_broker import DEPRECATED_UNITS
from headwater.mirror.config import KEYS as MIRROR_KEYS
from headwater.operations.mirror_metrics import families
from headwater_broker.api.context import Services
from headwater_broker.api.registry import load_handlers
from headwater_broker.api.request_meters import Meters
from headwater_broker.controller.controller import ControllerService
from headwater_broker.coordinator.group.consumer.meters import ConsumerGroupMeters
from headwater_broker.coordinator.transaction.marker_sender import MarkerTotals
from headwater_broker.log.cleaner import CleanerMeter
from headwater_broker.replica.share.led_partition import ShareParts
from headwater_broker.replica.share.share_partition_manager import ShareManager
from headwater_broker.runtime.histogram import Histogram
from headwater_broker.runtime.loop_lag import LagProbe
from headwater_broker.telemetry.leader_end_offsets import LeaderEndOffsets
from headwater_broker.telemetry.metrics import BrokerCollector
from soak import checker, history
from soak.faults import KINDS
from suites import spark_judge

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SOURCES = (
    "platform/headwater",
    "tiered_storage/headwater_tier",
    "broker_service/headwater_broker",
    "spark_integration/headwater_spark",
    "spark_integration/pyspark_headwater",
    "jobs",
)


def table(headings: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def api_versions() -> str:
    """What ApiVersions answers."""
    names = _api_names()

    def rows() -> Iterator[tuple[str, ...]]:
        for key, row in load_handlers().items():
            served = f"{row.low} - {row.high}"
            told = "" if row.advertised_low == row.low else f"advertised from {row.advertised_low}"
            yield str(key), names[key], served, told

    return table(("key", "API", "versions served", ""), rows())


def _api_names() -> dict[int, str]:
    return {
        key: row.request.__name__.removesuffix("Request") for key, row in load_handlers().items()
    }


def topic_configs() -> str:
    """Every topic key."""
    headings = ("key", "type", "default", "broker's default from", "meaning")

    def rows() -> Iterator[tuple[str, ...]]:
        for row in sorted(TOPIC_KEYS.values(), key=lambda r: r.name):
            twin = f"`{row.broker_name}`" if row.broker_name else ""
            yield f"`{row.name}`", _kind(row), _default(row), twin, row.doc

    return table(headings, rows())


def broker_configs() -> str:
    """Every broker key that is not only the default of a topic key."""
    twins = {row.broker_name for row in TOPIC_KEYS.values()}

    def rows() -> Iterator[tuple[str, ...]]:
        for row in sorted(BROKER_KEYS.values(), key=lambda r: r.name):
            if row.name not in twins and row.has_effect:
                changes = "yes" if row.is_dynamic else ""
                yield f"`{row.name}`", _kind(row), _default(row), changes, row.doc

    return table(("key", "type", "default", "while running", "meaning"), rows())


def configs_without_effect() -> str:
    """Every broker key of Kafka that is accepted and that nothing reads."""

    def rows() -> Iterator[tuple[str, ...]]:
        for row in sorted(BROKER_KEYS.values(), key=lambda r: r.name):
            if not row.has_effect:
                changes = "yes" if row.is_dynamic else ""
                yield f"`{row.name}`", _kind(row), _default(row), changes, row.doc

    return table(("key", "type", "default", "while running", "why"), rows())


def _kind(row: ConfigKey) -> str:
    facts = [row.kind.value]
    if row.unit:
        facts.append(row.unit)
    if row.choices:
        facts.append("one of " + ", ".join(row.choices))
    if row.minimum is not None:
        facts.append(f"at least {row.minimum:g}")
    return ", ".join(facts)


def _default(row: ConfigKey) -> str:
    if row.default is None:
        return "unset"
    text = row.render(row.default)
    return f"`{text}`" if text else "empty"


def unread_configs() -> str:
    """Keys whose names stand in no module but the rows that declare them."""
    texts = [
        path.read_text()
        for source in SOURCES
        for path in (ROOT / source).rglob("*.py")
        if not path.name.startswith("rows_")
    ]
    code = "\n".join(texts)
    coarse = {name for pairs in DEPRECATED_UNITS.values() for name, _ in pairs}
    twins = {row.broker_name for row in TOPIC_KEYS.values()}
    ignored = {name for name, row in BROKER_KEYS.items() if not row.has_effect}
    names = sorted((BROKER_KEYS.keys() - twins - coarse - ignored) | TOPIC_KEYS.keys())
    return ", ".join(f"`{name}`" for name in names if f'"{name}"' not in code) + "."


def metrics() -> str:
    """Every metric family of a broker."""
    return _table_of(families_of_a_broker())


def mirror_metrics() -> str:
    """Every metric family of a mirror."""
    return _table_of(families("1", {}))


def _table_of(found: Iterable[Metric]) -> str:
    rows = (
        (f"`{_exported(family)}`", family.type, _labels(family), family.documentation)
        for family in sorted(found, key=lambda f: f.name)
    )
    return table(("metric", "type", "labels", "meaning"), rows)


def _exported(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def _labels(family: Metric) -> str:
    names = getattr(family, "_labelnames", ())
    extra = ("le",) if isinstance(family, HistogramMetricFamily) else ()
    return ", ".join((*names, *extra))


class _Idle:
    """Any number of an idle broker: 0, empty, or more of the same."""

    def __getattr__(self, name: str) -> Any:
        return {"partitions": {}}.get(name, 0)


def families_of_a_broker() -> list[Metric]:
    """The metric families of an idle broker."""
    services = SimpleNamespace(
        meters=Meters(),
        replicas=_Idle(),
        logs=SimpleNamespace(flush_times=Histogram(), by_folder=list),
        disk_space=lambda path: (0, 0),
        groups=SimpleNamespace(
            coordinated=list,
            consumers=SimpleNamespace(meters=ConsumerGroupMeters()),
        ),
        purgatories=SimpleNamespace(produce=_Idle(), fetch=_Idle()),
        sessions=(),
        share_states=SimpleNamespace(
            prunes=0, coordinator=SimpleNamespace(runtime=SimpleNamespace(shards=()))
        ),
        shares=ShareManager(cast(ShareParts, _Idle()), lambda: 0),
        cleaner=CleanerMeter(),
        quotas=SimpleNamespace(throttled={}, throttled_ms={}),
        view=_Idle(),
        transactions=SimpleNamespace(
            counts=list, max_timeout_ms=0, markers=SimpleNamespace(totals=MarkerTotals(0, 0, 0))
        ),
        sinks=SimpleNamespace(tables=list, replies=Counter()),
        verifier=SimpleNamespace(verifications_total=0, failures_total={}),
        clock=SimpleNamespace(now_ms=lambda: 0),
    )
    lag, controller = cast(LagProbe, _Idle()), cast(ControllerService, _Idle())
    ends = cast(LeaderEndOffsets, SimpleNamespace(get=lambda topic, partition: None))
    collector = BrokerCollector(cast(Services, services), lag, controller, ends)
    return list(collector.collect())


def faults() -> str:
    """Every kind of fault that the harness injects."""

    def rows() -> Iterator[tuple[str, ...]]:
        for kind in KINDS:
            notes = ["alone"] if kind.alone else []
            notes += [kind.needs] if kind.needs else []
            notes += [f"p95 <= {kind.pause_bar_s:g} s"] if kind.pause_bar_s else []
            held = f"{kind.hold_s[0]:g} - {kind.hold_s[1]:g} s"
            yield f"`{kind.name}`", kind.what, held, ", ".join(notes)

    return table(("kind", "what happens", "held for", ""), rows())


def docstring_table(module: ModuleType) -> str:
    """The table in a module's docstring."""
    lines = (module.__doc__ or "").splitlines()
    return "\n".join(line for line in lines if line.startswith("|"))


def spark_findings() -> str:
    """What the judge of Spark's exactly-once writes finds."""
    rows = [f"| {kind} | {meaning} |" for kind, meaning in spark_judge.CLASSES.items()]
    return "\n".join(["| finding | what it means |", "|---|---|", *rows])


def mirror_properties() -> str:
    """The properties of a mirror."""

    def default(key: ConfigKey) -> str:
        return f"`{key.render(key.default)}`" if key.default is not None else "none"

    rows = (
        (
            f"`{key.name}`",
            f"{key.kind.value}{f', {key.unit}' * bool(key.unit)}",
            default(key),
            key.doc,
        )
        for key in MIRROR_KEYS
    )
    return table(("property", "type", "default", "what it does"), rows)


BLOCKS: dict[str, tuple[str, Callable[[], str]]] = {
    "api-versions": ("clients.md", api_versions),
    "topic-configs": ("configs.md", topic_configs),
    "broker-configs": ("configs.md", broker_configs),
    "configs-without-effect": ("configs.md", configs_without_effect),
    "unread-configs": ("configs.md", unread_configs),
    "metrics": ("metrics.md", metrics),
    "faults": ("fault-harness.md", faults),
    "anomalies": ("fault-harness.md", lambda: docstring_table(checker)),
    "history": ("fault-harness.md", lambda: docstring_table(history)),
    "spark-judge": ("fault-harness.md", spark_findings),
    "mirror-properties": ("mirror.md", mirror_properties),
    "mirror-metrics": ("mirror.md", mirror_metrics),
}


def with_block(text: str, name: str, body: str) -> str:
    """`text` with the block's contents replaced. Raises ValueError when it has no such block."""
    pattern = re.compile(f"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)", re.S)
    if not pattern.search(text):
        raise ValueError(f"no block {name}")
    return pattern.sub(lambda found: f"{found[1]}\n{body}\n\n{found[2]}", text)


def main() -> int:
    """Rewrite every block."""
    for name, (page, build) in BLOCKS.items():
        path = DOCS / page
        path.write_text(with_block(path.read_text(), name, build()))
    grafana_dashboard.FILE.write_text(grafana_dashboard.text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
