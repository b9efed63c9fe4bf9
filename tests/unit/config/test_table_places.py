"""Places below the folders that a topic's config may name."""

from __future__ import annotations

import pytest

from headwater.config.table_places import is_within

BASES = ("file:///lake/tables", "s3://lake/hw/", "file:///with%20space")


@pytest.mark.parametrize(
    "uri",
    [
        "file:///lake/tables",
        "file:///lake/tables/",
        "file:///lake/tables/team-a",
        "/lake/tables/team-a/",
        " /lake/tables/team-a ",
        "s3://lake/hw/x",
        "S3://lake/hw",
        "file:///with%20space/x",
    ],
)
def test_below_a_folder(uri: str) -> None:
    assert is_within(uri, BASES)


@pytest.mark.parametrize(
    "uri",
    [
        "/lake",
        "/lake/tables2",
        "/lake/tables/../../etc",
        "file:///lake/tables/./x",
        "file:///lake/tables//x",
        "file:///lake/tables/%2e%2e/x",
        "file:///lake/tables/..\\x",
        "file://host/lake/tables",
        "lake/tables",
        "tables",
        "s3://lake/hw2",
        "s3://lake",
        "s3a://lake/hw",
        "s3://lake/hw?x=1",
        "abfss://lake/hw",
        "",
        "/",
    ],
)
def test_elsewhere(uri: str) -> None:
    assert not is_within(uri, BASES)
    assert not is_within(uri, ())
    assert not is_within(uri, ("",))
