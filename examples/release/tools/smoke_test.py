"""Usage: smoke_test.py PROGRAM. Counts a long text with the built program and checks the answer."""

import random
import subprocess
import sys

chance = random.Random(7)  # noqa: S311 - the same text every time
text = "\n".join(" ".join(chance.choices(["rail", "yard", "rail-yard"], [5, 3, 1], k=10)) for _ in range(60_000))
command = [sys.executable, sys.argv[1], "2"]
printed = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout  # noqa: S603
assert [line.split()[1] for line in printed.splitlines()] == ["rail", "yard"], printed
print(printed, end="")
