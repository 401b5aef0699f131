"""The word that was probably meant, in messages for a terminal."""

from collections.abc import Iterable

from taskyard.cli import text
from taskyard.sdk import nearest as words
from taskyard.sdk.nearest import nearest

__all__ = ["nearest", "unknown"]


def unknown(what: str, word: str, known: Iterable[str]) -> str:
    """Say that there is no such word, and which one comes nearest, or else which ones there are."""
    return words.unknown(what, text.harmless(word), known)
