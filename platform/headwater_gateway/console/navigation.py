"""The navigation: sections, views and the keys that open them after `g`. Pure."""

from __future__ import annotations

from typing import NamedTuple

from headwater_gateway.console.addresses import ROOT, address


class Entry(NamedTuple):
    """A view in the navigation."""

    name: str
    path: str
    key: str
    """Opens the view when typed after `g`."""


class Section(NamedTuple):
    """Views under a heading; the first has none."""

    title: str
    entries: tuple[Entry, ...]


SECTIONS = (
    Section("", (Entry("Overview", address(), "o"),)),
    Section(
        "Data",
        (
            Entry("Topics", address("topics"), "t"),
            Entry("Schemas", address("schemas"), "s"),
            Entry("SQL", address("sql"), "q"),
            Entry("Completeness", address("completeness"), "p"),
        ),
    ),
    Section(
        "Clients",
        (
            Entry("Groups", address("groups"), "g"),
            Entry("Share groups", address("share-groups"), "h"),
            Entry("Transactions", address("transactions"), "x"),
        ),
    ),
    Section(
        "Cluster",
        (
            Entry("Brokers", address("brokers"), "b"),
            Entry("Moves", address("moves"), "m"),
            Entry("Configs", address("configs"), "c"),
            Entry("Access", address("access"), "a"),
            Entry("Audit", address("audit"), "u"),
        ),
    ),
)
SINGULAR = {
    "group": "groups",
    "schema": "schemas",
    "share-group": "share-groups",
    "transaction": "transactions",
}
"""Pages of one thing, whose names can hold any character, are beside their lists."""


def current_path(path: str) -> str:
    """The path of the entry that a page belongs to."""
    parts = path.removeprefix(ROOT).strip("/").split("/")
    head = SINGULAR.get(parts[0], parts[0])
    return address(head) if head else address()
