"""Random mixes of whatever can be launched: the rules hold at every instant, and everything ends."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taskyard.core.states import ENDED, Signal
from taskyard.lifecycle.commands import Cancel, Lease
from tests.effort import tries
from tests.engine.launch_history import Uses, check
from tests.engine.launches import PAYLOAD, TOOLS, LaunchHarness, inventory, job, plugin, project, workflow

if TYPE_CHECKING:
    from tests.lifecycle.harness import Labels

CACHED = {"update_on_launch": True, "update_cache_timeout": "1s"}
NOT_CACHED = {"update_on_launch": True}
DOCUMENTS: list[dict[str, Any]] = [
    project("web", **NOT_CACHED),
    project("lib", **CACHED),
    inventory(
        "hosts", sources=[plugin("cloud", **CACHED), {"name": "file", "project": "lib", "path": "h", **NOT_CACHED}]
    ),
    inventory("few"),
    job("deploy", project="web", inventory="hosts"),
    job("check", project="web", inventory="few", allow_simultaneous=True),
    job("build", project="lib"),
    {"kind": "system_job_template", "name": "clean", "payload": PAYLOAD},
    workflow("release", nodes={"b": {"template": "build"}, "d": {"template": "check", "requires": ["b"]}}),
]
USES = {
    "deploy": Uses("web", "hosts"),
    "check": Uses("web", "few", simultaneous=True),
    "build": Uses("lib"),
    "release": Uses(),
}
CACHES = {"project:web": 0, "project:lib": 1_000, "source:hosts/cloud": 1_000, "source:hosts/file": 0}

launches = st.sampled_from(["deploy", "check", "build", "clean", "release"])
steps = st.one_of(
    st.tuples(st.just("launch"), launches),
    st.tuples(st.just("launch"), launches),
    st.tuples(st.just("update"), st.sampled_from(["web", "lib", "hosts/cloud", "hosts/file"])),
    st.tuples(st.just("ad_hoc"), st.sampled_from(["hosts", "few"])),
    st.tuples(st.just("update"), st.just("web")),
    st.tuples(st.just("claim"), st.integers(1, 3)),
    st.tuples(st.just("claim"), st.integers(1, 3)),
    st.tuples(st.just("end"), st.integers(0, 3)),
    st.tuples(st.just("end"), st.integers(0, 3)),
    st.tuples(st.just("end"), st.integers(0, 3)),
    st.tuples(st.just("fail"), st.integers(0, 3)),
    st.tuples(st.just("cancel"), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.sampled_from([1, 400, 2_000])),
)


@pytest.fixture
def harness(database_url: str) -> Iterator[LaunchHarness]:
    with LaunchHarness(database_url) as made:
        made.hello("b1", **TOOLS)
        made.apply(*DOCUMENTS)
        yield made


class Play:
    """Plays steps: people launch and cancel, and a bot runs what it gets."""

    def __init__(self, harness: LaunchHarness) -> None:
        self.harness = harness
        self.leases: list[Lease] = []
        self.launched: list[Labels] = []

    def step(self, what: str, which: Any) -> None:
        self.harness.clock.advance(2)
        match what:
            case "launch":
                self.launched.append(self.harness.launch(which))
            case "update":
                self.launched.append(self.harness.update(which))
            case "ad_hoc":
                self.launched.append(self.harness.ad_hoc(which))
            case "claim":
                self.leases += self.harness.claim(which)
            case "end" | "fail" if self.leases:
                self.end(self.leases.pop(which % len(self.leases)), Signal.SUCCEED if what == "end" else Signal.FAIL)
            case "cancel" if self.launched:
                graph = self.launched[which % len(self.launched)].graph
                self.harness.engine.cancel(Cancel(graph=graph, actor="ann"))
            case "wait":
                self.harness.clock.advance(which)
        self.harness.clock.advance(2)
        self.harness.settle()

    def end(self, lease: Lease, signal: Signal) -> None:
        self.harness.end(lease, signal)

    def drain(self) -> None:
        """Let everything come to its end."""
        for _ in range(1_000):
            self.harness.clock.advance(2)
            self.harness.settle()
            self.leases += self.harness.claim(3)
            if not self.leases:
                return
            self.end(self.leases.pop(0), Signal.SUCCEED)
        raise AssertionError("it never comes to an end")


@settings(max_examples=tries(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(steps, min_size=15, max_size=60))
def test_the_rules_hold_for_random_launches(harness: LaunchHarness, steps: list[tuple[str, Any]]) -> None:
    since = harness.clock.now()
    harness.clock.advance(10)
    play = Play(harness)
    for what, which in steps:
        play.step(what, which)
    play.drain()
    with harness.store.read() as repo:
        found = check(repo, since, USES, CACHES)
        updates = [work.id for work in found if work.kind in {"project", "source"}]
        assert all(task.state in ENDED for task in repo.tasks.read(updates))
