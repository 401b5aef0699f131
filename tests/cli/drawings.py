"""A program that moves tasks on its terminal as fast as it can, and draws as often as it can.

It takes the view, and a number that its chances follow from. It says when all is shown, and ends with its input.
"""

import random
import sys
from collections.abc import Callable
from contextlib import ExitStack

import msgspec

from taskyard.cli import drawing
from taskyard.cli.drawing import LiveGraphProgress
from taskyard.wire.api import GraphView
from taskyard.wire.progress import Progress, State

TASKS = 16
LINES = 150
OVER = "all of it is shown"


class Sixteen:
    """A plan, as the view of a run needs it."""

    name = "sixteen"
    labels = tuple(f"t{number}" for number in range(TASKS))


def main(view: str, seed: int) -> None:
    drawing.FRAMES_PER_SECOND = 5_000
    sys.setswitchinterval(0.000_01)
    with ExitStack() as shown:
        {"run": of_run, "wait": of_wait}[view](shown, random.Random(seed))
        sys.stdin.readline()


def of_run(shown: ExitStack, chance: random.Random) -> None:
    """Begin and end tasks: each line comes with a drawing of another height."""
    view = shown.enter_context(drawing.LiveRunProgress(Sixteen()))  # type: ignore[arg-type]

    def move(number: int) -> None:
        view.say(line(number))
        view.show(Progress(chance.choice(Sixteen.labels), State.RUNNING, 1))
        view.show(Progress(chance.choice(Sixteen.labels), State.SKIPPED))

    moved(move)
    view.say(OVER)


def of_wait(shown: ExitStack, chance: random.Random) -> None:
    gauge = shown.enter_context(LiveGraphProgress())

    def move(number: int) -> None:
        gauge.say(line(number))
        running = list(Sixteen.labels[: chance.randrange(TASKS)])
        gauge.show(graph(len(running)), lambda: running)

    moved(move)
    gauge.say(OVER)


def moved(move: Callable[[int], None]) -> None:
    for number in range(LINES):
        move(number)


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
    main(sys.argv[1], int(sys.argv[2]))
