"""The oracles of the outside suites see what is lost, doubled, made up or out of order."""

from __future__ import annotations

from docs_pages import with_block
from suites import client_features
from suites.client_features import BLOCK, CLIENTS, FEATURES, PAGE, WORKS
from suites.copies import compared
from suites.flink import KEYS, SOURCE_PARTITIONS, line, verdict

LINES = ["a,0", "b,1", "a,2"]
OUTPUT = ["a,0,1", "b,1,1", "a,2,2"]


def test_flinks_output_may_come_in_any_order() -> None:
    assert verdict(LINES, reversed(OUTPUT)).is_exact


def test_a_lost_line_is_seen() -> None:
    found = verdict(LINES, OUTPUT[:2])
    assert not found.is_exact
    assert (found.missing, found.duplicated, found.unexpected) == (("a,2,2",), (), ())


def test_a_line_written_twice_is_seen() -> None:
    found = verdict(LINES, [*OUTPUT, OUTPUT[1]])
    assert (found.missing, found.duplicated, found.unexpected) == ((), ("b,1,1",), ())


def test_a_count_that_went_on_from_a_wrong_state_is_seen() -> None:
    found = verdict(LINES, ["a,0,1", "b,1,1", "a,2,3"])
    assert (found.missing, found.unexpected) == (("a,2,2",), ("a,2,3",))


def test_the_lines_of_a_key_are_in_one_partition() -> None:
    partitions: dict[str, set[int]] = {}
    for number in range(10 * KEYS):
        partition, text = line(number)
        assert 0 <= partition < SOURCE_PARTITIONS
        partitions.setdefault(text.partition(",")[0], set()).add(partition)
    assert len(partitions) == KEYS
    assert all(len(found) == 1 for found in partitions.values())


def test_equal_partitions_do_not_differ() -> None:
    assert compared(0, ["x", "y"], ["x", "y"]) is None


def test_a_partition_that_differs_tells_how() -> None:
    lost = compared(0, ["x", "y", "z"], ["x", "z"])
    assert lost is not None and (lost.missing, lost.first_out_of_order) == (("y",), 1)
    doubled = compared(0, ["x", "y"], ["x", "x", "y"])
    assert doubled is not None and (doubled.duplicated, doubled.missing) == (("x",), ())
    swapped = compared(0, ["x", "y"], ["y", "x"])
    assert swapped is not None and swapped.first_out_of_order == 0
    longer = compared(0, ["x"], ["x", "q"])
    assert longer is not None and (longer.unexpected, longer.first_out_of_order) == (("q",), 1)


def test_every_client_was_run_with_every_feature_and_works() -> None:
    results = {(client, feature): WORKS for client in CLIENTS for feature in FEATURES}
    text = PAGE.read_text()
    assert text == with_block(text, BLOCK, client_features.page_block(results)), (
        "docs/clients.md is stale: run `make suite-clients`"
    )
