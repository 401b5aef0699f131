"""A program that changes the live view as fast as it can and draws it as often as it can.

Its argument is the seed of its random numbers. It says when all lines are written, and ends when its input does.
"""

import random
import sys
from functools import partial

import msgspec

from taskyard.cli import drawing
from taskyard.cli.progress import Line
from taskyard.wire.api import GraphView
from taskyard.wire.progress import RunningTask

TASKS = 16
LINES = 150
OVER = "all of it is shown"


def main(seed: int) -> None:
    drawing.FRAMES_PER_SECOND = 5_000
    sys.setswitchinterval(0.000_01)
    chance = random.Random(seed)
    with drawing.LiveView("sixteen", TASKS) as view:
        for number in range(LINES):
            view.say(Line(line(number)))
            view.say()  # nothing: no line
            count = chance.randrange(TASKS)  # each line comes with a drawing of another height
            running = [RunningTask(f"t{task}", 1) for task in range(count)]
            view.show(graph(count), partial(list, running))
        view.say(Line(OVER))
        sys.stdin.readline()


def line(number: int) -> str:
    return f"line {number} is there"


def graph(running: int) -> GraphView:
    shape = {
        "id": "0000000000000001", "name": "sixteen", "state": "running", "routing": "", "description": "",
        "settled": False, "created_ms": 0, "moved_ms": 0, "canceled_ms": None, "active": TASKS, "behind": 0,
        "unhandled": 0, "tags": {}, "schedulerId": "taskyard",
        "counts": {"running": running, "waiting": TASKS - running},
    }  # fmt: skip
    return msgspec.convert(shape, GraphView)


if __name__ == "__main__":
    main(int(sys.argv[1]))
