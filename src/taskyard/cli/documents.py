"""Graph documents as they are given on a command line: a file, or standard input. What is in them is not judged."""

import sys
from pathlib import Path
from typing import Final

import click

#: Reading stops here: the longest document that is read, and one byte to see that it is longer.
READ_BYTES_MAX: Final = 10 * 1024 * 1024 + 1


def read(file: str) -> bytes:
    """Read the text of a document, as far as one is read; raise `OSError`."""
    if file == "-":
        return sys.stdin.buffer.read(READ_BYTES_MAX)
    with Path(file).open("rb") as document:
        return document.read(READ_BYTES_MAX)


def name_of(file: str) -> str:
    """Name a document in a message."""
    return "<stdin>" if file == "-" else file


file_argument = click.argument(
    "file", type=click.Path(), metavar="FILE", help="Graph document in YAML or JSON; - reads standard input."
)
