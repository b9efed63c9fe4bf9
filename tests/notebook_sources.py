"""Notebooks in Databricks' source form: reads their cells, and writes those of .ipynb files.

python tests/notebook_sources.py       # writes NAME.py beside each notebooks/NAME.ipynb
"""

from __future__ import annotations

import json
from pathlib import Path

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
HEAD = "# Databricks notebook source\n"
BETWEEN = "\n\n# COMMAND ----------\n\n"
MAGIC = "# MAGIC"


def code_cells(text: str) -> list[str]:
    """The Python cells of a notebook in source form; Markdown and magic cells are left out."""
    assert text.startswith(HEAD), "the first line makes the file a notebook"
    cells = text.removeprefix(HEAD).split(BETWEEN)
    return [cell for cell in cells if cell.strip() and not cell.lstrip().startswith(MAGIC)]


def source_form(notebook: Path) -> str:
    """An .ipynb file in source form."""
    document = json.loads(notebook.read_text())
    cells = []
    for cell in document["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            lines = ["%md", *source.splitlines()]
            source = "\n".join(f"{MAGIC} {line}".rstrip() for line in lines)
        cells.append(source)
    return HEAD + BETWEEN.join(cells) + "\n"


def main() -> None:
    """Write the source form of every .ipynb file."""
    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook.with_suffix(".py").write_text(source_form(notebook))


if __name__ == "__main__":
    main()
