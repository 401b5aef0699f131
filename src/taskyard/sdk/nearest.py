"""The word that was probably meant: unknown words are told with it. Nothing is ever done on a guess."""

from collections.abc import Iterable


def unknown(what: str, word: str, known: Iterable[str]) -> str:
    """Say that there is no such word, and which one comes nearest, or else which ones there are."""
    words = list(known)
    found = nearest(word, words)
    more = f'Did you mean "{found}"?' if found else _listed(words)
    return f'unknown {what} "{word}". {more}'.rstrip()


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Find the word that comes nearest, if any is near."""
    from difflib import get_close_matches  # noqa: PLC0415 - only who mistypes waits for it

    found = get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def _listed(words: list[str]) -> str:
    """Name all words, where these are few enough to be read."""
    return f"There are: {', '.join(words)}." if 0 < len(words) <= 12 else ""
