"""Usage: tally [HOW_MANY] < TEXT"""

import sys

from . import tally, top


def main() -> None:
    how_many = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    for word, count in top(tally(sys.stdin), how_many):
        print(f"{count:7} {word}")


main()
