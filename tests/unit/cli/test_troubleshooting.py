"""The messages that docs/operating.md explains are messages of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("platform", "tiered_storage", "broker_service", "spark_integration")
OF_SPARK = ("[DATA_SOURCE_NOT_FOUND]", "PYTHON_DATA_SOURCE_ERROR")
SEPARATORS = "|".join(
    (
        r"\.\.\.",
        r"\b(?:[A-Z]|T-P|NAME|URI|PATH|FILE|REASON|MESSAGE|TOPIC|\d+)\b",
        r"\$?[A-Z]+_[A-Z_]+",  # names of errors and variables
        r"__consumer_offsets|--set|\b[a-z]+(?:\.[a-z]+)+\b",
        r"[:;.] ",
    )
)
"""Between these, a message has the words of one string of the code."""
SHORT = 8
"""Pieces with fewer characters are not looked for."""


def quoted_messages() -> list[str]:
    """The messages of the table's first column."""
    page = (ROOT / "docs" / "operating.md").read_text()
    table = page[page.index("## Troubleshooting") :]
    cells = [row.split(" | ")[0] for row in table.splitlines() if row.startswith("| ")]
    found = [text for cell in cells for text in re.findall(r"``? ?(.+?) ?``?(?!`)", cell)]
    return [text for text in found if not text.startswith(OF_SPARK) and " " in text]


def texts_of_the_code() -> str:
    """All string constants, with adjacent literals joined and values replaced by `\\0`."""
    found = []
    for path in (p for folder in PACKAGES for p in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                values = (v.value if isinstance(v, ast.Constant) else "\0" for v in node.values)
                found.append("".join(map(str, values)))
    return "\n".join(found)


@pytest.fixture(scope="module")
def code() -> str:
    return texts_of_the_code()


@pytest.mark.parametrize("message", quoted_messages())
def test_a_message_of_the_troubleshooting_table_is_in_the_code(message: str, code: str) -> None:
    pieces = [piece.strip(" :,()/-") for piece in re.split(SEPARATORS, message)]
    for piece in (piece for piece in pieces if len(piece) >= SHORT):
        assert piece in code, f"{message!r}: no text of the code has {piece!r}"
