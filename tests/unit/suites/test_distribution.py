"""What is published: built out of this source, and whole."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from suites import distribution


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return distribution.build(tmp_path_factory.mktemp("dist"), isolated=False)


def test_the_wheel_has_what_it_should(built: tuple[Path, Path]) -> None:
    assert distribution.check_wheel(built[1]) == []


def test_the_sdist_has_what_it_should(built: tuple[Path, Path]) -> None:
    assert distribution.check_sdist(built[0]) == []


def test_what_is_wrong_is_found(built: tuple[Path, Path], tmp_path: Path) -> None:
    """A wheel without the marker for type checkers, and with a test."""
    spoiled = tmp_path / built[1].name
    with zipfile.ZipFile(built[1]) as source, zipfile.ZipFile(spoiled, "w") as target:
        for name in source.namelist():
            if name != "headwater/py.typed":
                target.writestr(name, source.read(name))
        target.writestr("headwater/test_it.py", "")
    wrong = distribution.check_wheel(spoiled)
    assert "headwater has no py.typed" in wrong
    assert "headwater/test_it.py is a test" in wrong


def test_the_version_is_in_one_place() -> None:
    version = distribution.declared_version()
    assert f'"{version}"' not in (distribution.ROOT / "pyproject.toml").read_text()
    changelog = (distribution.ROOT / "CHANGELOG.md").read_text()
    assert "## [Unreleased]" in changelog or f"## [{version}]" in changelog
