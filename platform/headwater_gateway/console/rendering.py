"""Templates: the only module that imports Jinja.

Autoescape is on, an undefined name is an error, and each value that is printed goes through
`visible` first, so that no template can forget it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from headwater_gateway.console import shown
from headwater_gateway.console.addresses import address

FOLDER = Path(__file__).parent / "templates"


class Templates:
    """The templates of the console's package."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        """`names`: what every template sees."""
        self._names = names

    def render(self, template: str, values: Mapping[str, Any]) -> str:
        """The page."""
        return _environment().get_template(template).render({**self._names, **values})


@cache
def _environment() -> Environment:
    """Each template is compiled once in a process."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        auto_reload=False,
        cache_size=-1,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(address=address)
    environment.filters.update(
        count=shown.count,
        brief=shown.brief_count,
        size=shown.size,
        duration=shown.duration,
        moment=shown.moment,
        lines=_lines,
        exact=_exact,
        document=_document,
    )
    return environment


def _finalized(value: Any) -> Any:
    if isinstance(value, Markup):
        return value
    return "" if value is None else shown.visible(str(value))


def _lines(text: str) -> Markup:
    """A text of several lines: strange characters as escapes, line ends kept."""
    return escape(shown.visible_lines(text))


def _exact(text: object) -> Markup:
    """The value of a form's field, which comes back as it is: escaped as HTML only."""
    return escape(str(text).encode("utf-8", "replace").decode())


def _document(value: Any) -> Markup:
    """JSON for a `data-` attribute."""
    return escape(json.dumps(value, separators=(",", ":"), allow_nan=False))
