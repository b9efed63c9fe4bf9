"""One way to append as leader: `Partition.append`, behind the services of the replica layer."""

from __future__ import annotations

import ast
from pathlib import Path

BROKER = Path(__file__).resolve().parents[2] / "broker_service/headwater_broker"
APPENDERS = {
    "api/k00_produce.py",
    "api/produce/transactional.py",
    "coordinator/common/lone_appends.py",
    "replica/append_service.py",
    "replica/marker_writer.py",
}
"""They call `Partition.append`; `AppendService` says why. Others take `AppendService.append`."""


def callers(method: str, arguments: int, receivers: tuple[str, ...] = ()) -> set[str]:
    """The broker's files that call a method of this name with so many arguments, or more, on a
    variable of one of these names; none: on anything."""
    return {
        str(path.relative_to(BROKER))
        for path in sorted(BROKER.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == method
        and (not receivers or getattr(node.func.value, "id", "") in receivers)
        and len(node.args) >= arguments
    }


def test_only_a_partition_appends_to_its_log_as_leader() -> None:
    assert callers("append_as_leader", 1) == {"replica/partition.py", "log/unified_log.py"}


def test_who_appends_without_the_append_service_is_listed() -> None:
    assert callers("append", 3, ("partition", "log")) == APPENDERS
