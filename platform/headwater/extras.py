"""The install hint for optional dependencies, from a clone: the package is in no index."""

from __future__ import annotations


def install_hint(extra: str) -> str:
    """The hint to append to an error; `extra` is one of pyproject.toml's."""
    return f"in Headwater's clone, run pip install '.[{extra}]'"
