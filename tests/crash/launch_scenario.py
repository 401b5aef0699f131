"""A scenario of launches that is run again after a kill: every request has a key, and what is there runs to its end."""

from typing import Any, Final

from taskyard.core.catalogue.launched import Wanted
from taskyard.core.durations import HOUR_MS
from taskyard.core.fleet import SWEEP_MS
from taskyard.core.matching import canonical
from taskyard.core.states import Millis, Signal
from taskyard.engine.engine import Engine
from taskyard.engine.launch import TEMPLATE
from taskyard.lifecycle.commands import Hello, Lease, Poll, Report
from taskyard.lifecycle.launch import LaunchStored
from taskyard.lifecycle.poll import PollOutcome
from tests.crash.scenario import ScenarioClock
from tests.engine.harness import TURNS_MAX
from tests.engine.launches import TOOLS, apply, job, plugin, project, workflow
from tests.engine.launches import inventory as hosts

CACHED: Final[dict[str, Any]] = {"update_on_launch": True, "update_cache_timeout": "30d"}
DOCUMENTS: Final = [
    project("web", **CACHED),
    hosts(sources=[plugin("cloud", **CACHED), {"name": "file", "project": "web", "path": "hosts.ini", **CACHED}]),
    job("deploy", project="web", inventory="hosts"),
    job("check", project="web", allow_simultaneous=True),
    workflow(nodes={"c": {"template": "check"}, "d": {"template": "deploy", "requires": ["c"]}}),
]
LAUNCHED: Final = ("deploy", "check", "release", "deploy", "web")
#: The scenario ends after fewer turns.
STEPS_MAX: Final = 200


def run_launches(url: str) -> None:
    """Launch everything, each once, and run what is there to its end."""
    clock = ScenarioClock()
    engine = Engine.open(url, clock)
    with engine.store.read() as repo:  # the clock of a process that was killed had gone on, and less than slices wait
        known = repo.launches.page("", "", None, -1, 1)
        seen = [repo.graphs.peek([row.graph])[0].created_ms for row in known]
    clock.ms = Millis(max([clock.ms, *seen]) + HOUR_MS)
    engine.writer_thread.start()
    apply(engine, *DOCUMENTS)
    for place, name in enumerate(LAUNCHED):
        kind = "project" if name == "web" else TEMPLATE
        answer = engine.launch(Wanted(kind, name), key=f"launch {place}", actor="ann")
        assert isinstance(answer, LaunchStored), answer
    _run_bot(engine, clock)
    engine.stop()


def _run_bot(engine: Engine, clock: ScenarioClock) -> None:
    session = clock.word()
    engine.hello(Hello("b1", session, canonical({"id": "b1", "pool": "default", **TOOLS}), 1))
    for step in range(STEPS_MAX):
        for _ in range(TURNS_MAX):
            if not engine.background.run_once():
                break
        leases = _poll(engine, session, f"{session}-{step}")
        if leases:
            _poll(engine, session, f"{session}-{step}-end", leases[0])
        elif not _has_work(engine):
            return
        clock.advance(SWEEP_MS)
    raise AssertionError("the launches never come to an end")


def _poll(engine: Engine, session: str, poll: str, ended: Lease | None = None) -> tuple[Lease, ...]:
    reports = () if ended is None else (Report(ended.task, ended.attempt, ended.fence, Signal.SUCCEED),)
    answer = engine.poll(Poll("b1", session, poll, reports, want=0 if reports else 1))
    assert isinstance(answer, PollOutcome), answer
    return answer.leases


def _has_work(engine: Engine) -> bool:
    with engine.store.read() as repo:
        graphs = [row.graph for row in repo.launches.page("", "", None, -1, 1_000)]
        return any(graph.tally.active for graph in repo.graphs.peek(graphs))
