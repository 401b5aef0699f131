"""The word that was probably meant, in messages for a terminal."""

from collections.abc import Iterable

from taskyard.cli import text
from taskyard.wire.close_match import unknown_name


def unknown(what: str, word: str, known: Iterable[str]) -> str:
    """Say that there is no such word, and which one comes nearest, or else which ones there are."""
    return unknown_name(what, text.harmless(word), known)
