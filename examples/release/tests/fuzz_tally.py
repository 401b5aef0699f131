"""Compares `words` with a slow reading, letter by letter, on many random texts."""

import random
import sys

from tally import words  # type: ignore[import-not-found]

ALPHABET = "aZé'-_ 7\n."
INNER = "'-"


def slow_words(text: str) -> list[str]:
    found, word = [], ""
    for place, letter in enumerate(text):
        joins = letter in INNER and word and word[-1].isalpha() and text[place + 1 : place + 2].isalpha()
        if letter.isalpha() or joins:
            word += letter
        elif word:
            found.append(word.casefold())
            word = ""
    return [*found, word.casefold()] if word else found


def main(rounds: int) -> None:
    chance = random.Random(2024)  # noqa: S311 - the same texts every time
    for _ in range(rounds):
        text = "".join(chance.choices(ALPHABET, k=chance.randrange(60)))
        assert words(text) == slow_words(text), repr(text)
    print(f"{rounds} random texts read alike")


main(int(sys.argv[1]))
