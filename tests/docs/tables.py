"""Tables of pages, as rows of cells."""

import re
from pathlib import Path

from tests.project.tree import DOCS


def rows(page: Path | str, heading: str = "") -> list[list[str]]:
    """The rows of all tables of a page, or of those below one of its headings."""
    text = (DOCS / page).read_text(encoding="utf-8")
    if heading:
        text = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = re.findall(r"^\|.*\|\n(?:\| -.*\n)((?:\|.*\n)*)", text, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for part in lines for line in part.splitlines()]


def coded(text: str) -> list[str]:
    """The parts of a text in backticks."""
    return re.findall(r"`([^`]+)`", text)


def names(page: Path | str, heading: str = "") -> list[str]:
    """The parts in backticks of the first column of tables."""
    return [one for row in rows(page, heading) for one in coded(row[0])]
