"""Addresses of the console's pages. They hold all the state of a view, and no secret. Pure."""

from __future__ import annotations

from urllib.parse import quote, urlencode

ROOT = "/console"


def address(*parts: object, **query: object) -> str:
    """`address("topics", "flights", sort="lag")` -> `/console/topics/flights?sort=lag`.

    Without parts: the overview. A query value that is None, False or empty is left out; a list
    is repeated.
    """
    names = [quote(str(part).encode("utf-8", "replace"), safe="") for part in parts]
    path = f"{ROOT}/{'/'.join(names)}"
    rows: list[tuple[str, bytes]] = []
    for name, value in query.items():
        values = value if isinstance(value, list | tuple) else [value]
        for item in values:
            if item is None or item is False or item == "":
                continue
            text = "1" if item is True else str(item)
            rows.append((name.rstrip("_"), text.encode("utf-8", "replace")))
    return f"{path}?{urlencode(rows)}" if rows else path
