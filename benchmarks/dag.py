"""How fast a graph is built, checked for cycles and drained in memory, against graphlib and rustworkx.

The graph is random, in 100 layers; a node depends on some nodes of the layer before it. Its nodes are listed either
as generated, prerequisites first, or shuffled, which is the hard case. Everybody gets the input that suits it, ready
made before the clock starts: graphlib the predecessors of each node, rustworkx and Taskyard pairs. Each run is a
process of its own and they take turns; a time is CPU time, the best of all runs, and what is judged is its ratio to
graphlib's.

graphlib and rustworkx learn that a task is done. Taskyard also learns that it is taken, once, by one caller.
"""

import gc
import json
import random
import resource
import subprocess
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias

from benchmarks import report
from benchmarks.report import Case, Peer
from taskyard import Dag, Scheduler

LAYERS = 100
RUNS = 3
SEED = 7
#: No run takes a tenth of this; one that does hangs.
RUN_SECONDS_MAX = 300

Label: TypeAlias = Any  # an int or a str; only Taskyard and graphlib take both
Order = Literal["as generated", "shuffled"]
Labels = Literal["int", "str"]
Drain = Literal["one by one", "newest first", "in waves"]
Program = Literal["taskyard", "graphlib", "rustworkx"]


@dataclass(frozen=True, slots=True)
class Graph:
    """Which graph."""

    nodes: int
    parents: int
    order: Order

    @property
    def title(self) -> str:
        return f"{self.nodes:,} nodes, {self.nodes * self.parents:,} edges, {self.order}"


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be done with a graph, and the share of graphlib's time that it may take."""

    graph: Graph
    drain: Drain
    labels: Labels = "int"
    must: float | None = None

    @property
    def title(self) -> str:
        return f"{self.graph.title}{', strings' if self.labels == 'str' else ''}, {self.drain}"


@dataclass(frozen=True, slots=True)
class Run:
    """What one run took."""

    build_seconds: float
    validate_seconds: float
    drain_seconds: float
    peak_mib: float

    @property
    def seconds(self) -> float:
        return self.build_seconds + self.validate_seconds + self.drain_seconds


def measure(quick: bool) -> list[Case]:
    """Let everybody do every task, in turns, and compare."""
    tasks = _quick_tasks() if quick else _tasks()
    with TemporaryDirectory() as folder:
        for graph in {task.graph for task in tasks}:
            _generate(graph, _path(folder, graph))
        return [case for task in tasks for case in _compare(task, folder, runs=1 if quick else RUNS)]


def _tasks() -> list[Task]:
    hundred_thousand = [Graph(100_000, 3, "as generated"), Graph(100_000, 3, "shuffled")]
    million = [Graph(1_000_000, 2, "as generated"), Graph(1_000_000, 2, "shuffled")]
    return [
        *(Task(graph, drain) for graph in hundred_thousand for drain in ("one by one", "in waves")),
        *(Task(graph, "one by one", must=0.75) for graph in million),
        *(Task(graph, "in waves", must=0.5) for graph in million),
        *(Task(graph, "newest first") for graph in million),
        Task(million[1], "in waves", labels="str"),
    ]


def _quick_tasks() -> list[Task]:
    graph = Graph(10_000, 2, "shuffled")
    return [Task(graph, "one by one"), Task(graph, "newest first"), Task(graph, "in waves", labels="str")]


def _compare(task: Task, folder: str, runs: int) -> list[Case]:
    programs: list[Program] = ["taskyard", "graphlib"]
    if task.labels == "int":
        programs.append("rustworkx")  # its nodes have numbers for names
    results: dict[Program, list[Run]] = {program: [] for program in programs}
    for _ in range(runs):
        for program in programs:
            results[program].append(_run(program, task, folder))
    best = {program: min(done, key=lambda run: run.seconds) for program, done in results.items()}
    peak = {program: min(run.peak_mib for run in done) for program, done in results.items()}
    _talk(task, best)
    seconds = {program: run.seconds for program, run in best.items()}
    return [
        _ratio(f"{task.title}: time", seconds, task.must),
        _ratio(f"{task.title}: peak memory", peak, None if task.must is None else 1.0),
    ]


def _ratio(title: str, figures: dict[Program, float], must: float | None) -> Case:
    """Divide by graphlib's figure; rustworkx, which is written in Rust, is the goal."""
    shares = {program: round(figure / figures["graphlib"], 3) for program, figure in figures.items()}
    rust = shares.get("rustworkx")
    peer = None if rust is None else Peer("rustworkx", rust)
    return Case(title, shares["taskyard"], "x graphlib", "lower", must=must, goal=rust, peer=peer)


def _talk(task: Task, best: dict[Program, Run]) -> None:
    for program, run in best.items():
        print(
            f"{task.title}: {program:<9} {run.seconds:6.3f} s = build {run.build_seconds:.3f}"
            f" + validate {run.validate_seconds:.3f} + drain {run.drain_seconds:.3f}; {run.peak_mib:.0f} MiB",
            file=sys.stderr,
        )


def _run(program: Program, task: Task, folder: str) -> Run:
    order = json.dumps({"program": program, "task": asdict(task), "path": _path(folder, task.graph)})
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.dag", "run", order],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=RUN_SECONDS_MAX,
    )
    return Run(**json.loads(done.stdout))


# The graph, as a file: for each node in the order of the labels its prerequisites, or -1 in each place.


def _path(folder: str, graph: Graph) -> str:
    return str(Path(folder, f"{graph.nodes}-{graph.parents}-{graph.order}"))


def _generate(graph: Graph, path: str) -> None:
    chance, width = random.Random(SEED), graph.nodes // LAYERS
    label = list(range(graph.nodes))
    if graph.order == "shuffled":
        chance.shuffle(label)
    rows = array("i", [-1]) * (graph.nodes * graph.parents)
    for node in range(width, graph.nodes):
        layer = node // width * width
        parents = chance.sample(range(layer - width, layer), graph.parents)
        start = label[node] * graph.parents
        rows[start : start + graph.parents] = array("i", [label[parent] for parent in parents])
    Path(path).write_bytes(rows.tobytes())


def _load(task: Task, path: str) -> tuple[list[Label], list[list[Label]]]:
    """Read the labels of a graph, and the prerequisites of each."""
    rows = array("i", Path(path).read_bytes())
    parents = task.graph.parents
    labels: list[Label] = [*range(task.graph.nodes)]
    if task.labels == "str":
        labels = [f"task-{label}" for label in labels]
    starts = range(0, len(rows), parents)
    return labels, [[labels[row] for row in rows[start : start + parents] if row >= 0] for start in starts]


# The programs. Each stops where a clock is read: its input is ready, it is built, it is validated, it is drained.

Stages: TypeAlias = Iterator[int]


def _taskyard(task: Task, path: str) -> Stages:
    labels, prerequisites = _load(task, path)
    edges = [(label, needed) for label, row in zip(labels, prerequisites, strict=True) for needed in row]
    del prerequisites
    yield 0
    dag = Dag.from_edges(edges, labels)
    yield 0
    scheduler = Scheduler(dag)
    yield 0
    if task.drain == "in waves":
        drained, wave = 0, list(scheduler.available_tasks)
        while wave:
            drained += len(wave)
            scheduler.fetch_tasks(wave)
            wave = scheduler.deliver_tasks(wave)
        yield drained
        return
    fetch, deliver = scheduler.fetch_task, scheduler.deliver_task
    ready, drained = deque(scheduler.available_tasks), 0
    take = ready.pop if task.drain == "newest first" else ready.popleft
    while ready:
        label = take()
        fetch(label)
        ready.extend(deliver(label))
        drained += 1
    yield drained


def _graphlib(task: Task, path: str) -> Stages:
    labels, prerequisites = _load(task, path)
    yield 0
    sorter: TopologicalSorter[Label] = TopologicalSorter()
    for label, row in zip(labels, prerequisites, strict=True):
        sorter.add(label, *row)
    yield 0
    sorter.prepare()
    yield 0
    yield _drained(task, sorter.get_ready, sorter.done, lambda wave: sorter.done(*wave))


def _rustworkx(task: Task, path: str) -> Stages:
    import rustworkx  # noqa: PLC0415 - in the others' processes it would count as memory

    labels, prerequisites = _load(task, path)
    edges = [(needed, label) for label, row in zip(labels, prerequisites, strict=True) for needed in row]
    del prerequisites
    yield 0
    graph = rustworkx.PyDiGraph(multigraph=False)
    graph.add_nodes_from(labels)
    graph.add_edges_from_no_data(edges)
    yield 0
    sorter = rustworkx.TopologicalSorter(graph, check_cycle=True)
    yield 0
    yield _drained(task, sorter.get_ready, sorter.done, sorter.done)


def _drained(
    task: Task,
    get_ready: Callable[[], Iterable[Label]],
    done: Callable[[Label], None],
    all_done: Callable[[list[Label]], None],
) -> int:
    drained = 0
    if task.drain == "in waves":
        while wave := list(get_ready()):
            drained += len(wave)
            all_done(wave)
        return drained
    ready = deque(get_ready())
    take = ready.pop if task.drain == "newest first" else ready.popleft
    while ready:
        done(take())
        ready.extend(get_ready())
        drained += 1
    return drained


PROGRAMS: dict[str, Callable[[Task, str], Stages]] = {
    "taskyard": _taskyard,
    "graphlib": _graphlib,
    "rustworkx": _rustworkx,
}


def _run_here(order: str) -> None:
    """Do one run in this process and print what it took."""
    asked = json.loads(order)
    task = Task(**asked["task"] | {"graph": Graph(**asked["task"]["graph"])})
    stages = PROGRAMS[asked["program"]](task, asked["path"])
    next(stages)
    gc.collect()
    start = time.process_time()
    clock = [(time.process_time(), drained) for drained in stages]
    (built, _), (validated, _), (end, drained) = clock
    assert drained == task.graph.nodes, f"{asked['program']} drained {drained} nodes of {task.graph.nodes}"
    print(json.dumps(asdict(Run(built - start, validated - built, end - validated, _peak_mib()))))


def _peak_mib() -> float:
    """Say how much memory this process had at most; the kernel's own count starts when the program does."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        _run_here(sys.argv[2])
    else:
        sys.exit(report.main("dag", measure))
