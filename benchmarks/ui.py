"""What a person waits for in the web page: graphs and a long log that open, a drawing that moves, what is loaded.

Times are taken in Chromium without a window and with software rendering, from the opening of an address (the files of
the page are in the cache of the browser) until what was asked for is drawn; the median of some. The size of the page is
what is sent of its scripts, compressed, without the part that draws thousands of tasks and is loaded only for these.
"""

import gzip
import re
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

from playwright.sync_api import Page

from benchmarks.cluster import Cluster, cluster
from benchmarks.report import Case, main
from taskyard.server.page import FOLDER
from tests.ui.browser import Watched, browser

SIZES: Final = (100, 1_000, 10_000)
#: For the largest graph, and for the first lines of a log.
OPEN_MUST_MS: Final = 3_000.0
OPEN_GOAL_MS: Final = 1_500.0
LOG_MUST_MS: Final = 1_000.0
SCRIPT_MUST_KB: Final = 400.0
#: A tenth of a second is seen as at once.
PAN_GOAL_MS: Final = 100.0
RUNS: Final = 3
PANS: Final = 20
WIDTH: Final = 100
#: Draws all tasks of a large graph.
CANVAS: Final = re.compile(r"canvas-.*\.js")
#: Keeps, for each movement of the pointer, the time until the frame after it is drawn.
WATCH_FRAMES: Final = """() => {
  window.frames_ms = [];
  addEventListener("mousemove", () => {
    const began = performance.now();
    requestAnimationFrame(() => setTimeout(() => window.frames_ms.push(performance.now() - began)));
  }, true);
}"""


def measure(quick: bool) -> list[Case]:
    """Measure a server with graphs of several sizes and one long log."""
    lines, sizes, runs = (20_000, SIZES[:2], 1) if quick else (1_000_000, SIZES, RUNS)
    with cluster("sqlite") as place, browser() as chromium:
        graphs = {size: place.client.submit(layered(size)).graph_id for size in sizes}
        log = long_log(place, lines)
        watched = Watched(chromium.new_context(viewport={"width": 1360, "height": 860}), place.url)
        watched.sign_in(place.client.new_token("user", "ui", scopes=["admin"]).token)
        cases = [size_of_script()]
        for size, graph in graphs.items():
            took = opened(watched, f"/graphs/{graph}", ".node", runs)
            is_large = size == SIZES[-1]
            cases.append(
                Case(f"open a graph of {size}", took, "ms", "lower", OPEN_MUST_MS if is_large else None, OPEN_GOAL_MS)
            )
            cases.append(Case(f"pan a graph of {size}", panned(watched.page), "ms", "lower", None, PAN_GOAL_MS))
        if not quick:
            watched.open(f"/graphs/{graphs[SIZES[-1]]}")
            all_tasks = lambda page: page.get_by_role("button", name="All tasks").click()  # noqa: E731
            took = timed(watched.page, all_tasks, ".drawing canvas")
            cases.append(Case(f"show all tasks of {SIZES[-1]}", took, "ms", "lower", None, OPEN_MUST_MS))
            cases.append(Case(f"pan all tasks of {SIZES[-1]}", panned(watched.page), "ms", "lower", None, PAN_GOAL_MS))
        took = opened(watched, f"/tasks/{log}/log", ".log-line", runs)
        cases.append(Case(f"first of {lines} lines", took, "ms", "lower", LOG_MUST_MS))
        took = timed(watched.page, lambda _: None, f"[data-lines='{lines}']")
        cases.append(Case(f"all of {lines} lines, after that", took, "ms", "lower"))
    return cases


def layered(size: int) -> dict[str, Any]:
    """Make a graph in layers, whose tasks require two of the layer before; no bot can run it."""
    tasks: dict[str, Any] = {}
    task = {"payload": {"command": ["true"]}, "dimensions": {"pool": "default", "id": "nobody"}}
    width = min(WIDTH, size // 10)
    for number in range(size):
        layer = number // width
        before = [f"step-{layer - 1}-{(number * 7 + shift) % width}" for shift in (0, 3)] if layer else []
        tasks[f"step-{layer}-{number % width}"] = {"requires": before, "task": task}
    return {"name": f"{size} tasks", "tasks": tasks}


def long_log(place: Cluster, lines: int) -> str:
    """Run a task that prints many lines; return its id."""
    place.bot("printer", 1)
    script = f"seq -f 'line %.0f of a build that says much' {lines}"
    made = place.client.submit({"name": "log", "tasks": {"prints": {"task": {"payload": {"script": script}}}}})
    place.client.wait(made.graph_id, 120)
    return made.nameMapping["prints"]


def opened(watched: Watched, path: str, wanted: str, runs: int) -> float:
    """Open a path some times, each from another page; return the median until something is drawn, in milliseconds."""
    times = []
    for _ in range(runs + 1):  # the first one fills the cache of the browser
        watched.open("/limits")
        watched.page.get_by_role("heading", name="Mutexes and limits").wait_for()
        times.append(timed(watched.page, lambda _: watched.open(path), wanted))
    return median(times[1:])


def timed(page: Page, act: Callable[[Page], object], wanted: str) -> float:
    began = time.perf_counter()
    act(page)
    page.locator(wanted).first.wait_for()
    return (time.perf_counter() - began) * 1000


def panned(page: Page) -> float:
    """Drag a drawing; return the median until the next frame, in milliseconds."""
    page.evaluate(WATCH_FRAMES)
    page.mouse.move(900, 700)
    page.mouse.down()
    for step in range(PANS):
        page.mouse.move(900 - 8 * step, 700 - 4 * step)
        page.wait_for_function(f"window.frames_ms.length > {step}")
    page.mouse.up()
    return float(page.evaluate("window.frames_ms.toSorted((a, b) => a - b)[Math.floor(window.frames_ms.length / 2)]"))


def size_of_script() -> Case:
    """Add up what is sent of all scripts of the page."""
    scripts = [path for path in FOLDER.glob("assets/*.js") if not CANVAS.fullmatch(path.name)]
    size = sum(len(gzip.compress(path.read_bytes())) for path in scripts) / 1000
    return Case("script of the page", size, "kB", "lower", SCRIPT_MUST_KB)


if __name__ == "__main__":
    sys.exit(main("ui", measure))
