"""CHANGELOG, CONTRIBUTING and docs/architecture.md say what the tree has."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from headwater.topic_names import INTERNAL_TOPICS
from headwater_broker.api.registry import load_handlers
from headwater_broker.coordinator.common.service import CoordinatorType

ROOT = Path(__file__).resolve().parents[2]
BROKER = ROOT / "broker_service" / "headwater_broker"
HANDLERS = sorted(path.stem for path in (BROKER / "api").glob("k*_*.py"))
COORDINATORS = sorted(
    path.name for path in (BROKER / "coordinator").iterdir() if (path / "records.py").exists()
)
WITHOUT_RIGHTS = {"k18_api_versions"}
VERSION_LINES_MAX = 45
"""Of the CHANGELOG. When a version has more, extend the line of the subject."""


def changelog_sections() -> list[str]:
    return (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1:]


def contributing(heading: str) -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def files_of(path: str) -> list[Path]:
    """What a path of CONTRIBUTING stands for, in the root or in the broker's package."""
    roots = (ROOT, BROKER, ROOT / "platform" / "headwater" / "config")
    return [found for root in roots for found in root.glob(path)]


def paths(heading: str) -> Iterator[str]:
    yield from re.findall(r"`([\w*.-]+(?:/[\w*.-]+)+|\w+\.(?:py|md))`", contributing(heading))


def test_the_changelog_has_one_line_for_each_subject() -> None:
    for section in changelog_sections():
        lines = section.splitlines()
        assert len(lines) <= VERSION_LINES_MAX, "extend the line of the subject"
        rows = [line for line in lines if line.startswith("- ")]
        assert [row for row in rows if not re.match(r"- \*\*[^*]+\*\*: .+[.]$", row)] == []
        assert [line for line in lines if line.startswith(" ")] == []


def test_contributing_names_files_that_exist() -> None:
    for heading in ("Add an API key", "Add a config", "Add a coordinator", "Tests"):
        named = [path for path in paths(heading) if "/" in path or heading != "Tests"]
        assert named, heading
        for path in named:
            for name in (HANDLERS if "kNN_name" in path else COORDINATORS)[-1:]:
                path = path.replace("kNN_name", name).replace("NAME", name)
            assert files_of(path), (heading, path)


def test_every_api_key_is_in_the_places_that_contributing_names() -> None:
    clients = (ROOT / "docs" / "clients.md").read_text()
    rights = "".join(path.read_text() for path in files_of("tests/suites/rights_*.py"))
    served = {int(name.partition("_")[0][1:]): name for name in HANDLERS}
    assert served.keys() == load_handlers().keys()
    for key, name in served.items():
        assert files_of(f"platform/headwater/wire/apis/{name}.py"), name
        assert f"\n| {key} | " in clients, name
        assert name in WITHOUT_RIGHTS or f"import {name} " in rights, name


def test_every_file_of_config_rows_is_in_contributing() -> None:
    rows = {path.name for path in files_of("rows_*.py")}
    assert rows == {path for path in paths("Add a config") if path.startswith("rows_")}


def test_every_coordinator_is_in_the_places_that_contributing_names() -> None:
    assert len(COORDINATORS) == len(CoordinatorType) == len(INTERNAL_TOPICS)
    versions = (ROOT / "docs" / "versions.md").read_text()
    settings = (BROKER / "app" / "current_api_config.py").read_text()
    assert [topic for topic in INTERNAL_TOPICS if f"`{topic}`" not in versions] == []
    assert settings.count("_TOPIC: InternalTopicConfig(") == len(INTERNAL_TOPICS)
    for name in COORDINATORS:
        for part in ("records", "shard", "service", "config"):
            assert (BROKER / "coordinator" / name / f"{part}.py").exists(), (name, part)
        service = f"coordinator.{name}.service import"
        for place in ("app/data_plane.py", "api/context.py"):
            assert service in (BROKER / place).read_text(), (name, place)


def test_the_architecture_names_the_rooms_of_the_broker_in_the_order_of_their_contract() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = (c["layers"] for c in config["contracts"] if c["name"] == "inside the broker")
    text = (ROOT / "docs" / "architecture.md").read_text()
    (drawn,) = (part for part in text.split("```") if part.startswith("\ntesting "))
    assert [line[:32].strip() for line in drawn.strip().splitlines()] == layers
    rooms = {path.parent.name for path in BROKER.glob("*/__init__.py")}
    assert {room for layer in layers for room in layer.split(" | ")} == rooms


def test_the_architecture_names_each_package_and_each_port() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    roots = ("platform", "tiered_storage", "broker_service", "spark_integration")
    found = [path.parent for root in roots for path in ROOT.glob(f"{root}/*/__init__.py")]
    assert {package.name for package in found} == set(config["root_packages"])
    for package in found:
        assert f"`{package.relative_to(ROOT)}`" in text, package
    ports = {path.stem for path in (ROOT / "platform/headwater/ports").glob("[a-z]*.py")}
    assert ports == set(re.findall(r"^\| `(\w+)` \| ", text, re.MULTILINE)) & ports
