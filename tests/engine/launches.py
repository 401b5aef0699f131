"""A harness for launches: it applies documents, launches templates, and plays bots that run what is there."""

from collections.abc import Mapping
from typing import Any

import msgspec

from taskyard.core.catalogue.launched import Options, Wanted
from taskyard.core.states import Signal, State
from taskyard.engine.engine import Engine
from taskyard.engine.launch import BY_HAND, TEMPLATE, Origin
from taskyard.lifecycle.catalogue import Applied
from taskyard.lifecycle.commands import Cancel, Done, Lease, Refusal
from taskyard.lifecycle.launch import LaunchStored
from taskyard.lifecycle.poll import PollOutcome
from tests.engine.harness import EngineHarness, report
from tests.lifecycle.harness import Labels

#: What bots need for updates and plays.
TOOLS: dict[str, Any] = {"git": "2.39", "ansible": "2.19"}
#: What a template runs where that does not matter.
PAYLOAD = {"command": ["true"]}


def project(name: str = "web", **fields: Any) -> dict[str, object]:
    return {"kind": "project", "name": name, "git": f"https://git.example/{name}.git", **fields}


def inventory(name: str = "hosts", **fields: Any) -> dict[str, object]:
    return {"kind": "inventory", "name": name, **fields}


def plugin(name: str, **fields: Any) -> dict[str, object]:
    """A source of an inventory that needs no project."""
    return {"name": name, "plugin": {"plugin": "constructed"}, **fields}


def job(name: str = "deploy", **fields: Any) -> dict[str, object]:
    return {"kind": "job_template", "name": name, "payload": PAYLOAD, **fields}


def workflow(name: str = "release", **fields: Any) -> dict[str, object]:
    return {"kind": "workflow_template", "name": name, **fields}


def apply(engine: Engine, *documents: dict[str, object]) -> None:
    """Put documents into the catalogue."""
    answer = engine.catalogue.apply(list(documents), actor="ann")
    assert isinstance(answer, Applied), answer


class LaunchHarness(EngineHarness):
    """An engine for which documents are applied and launched."""

    def apply(self, *documents: dict[str, object]) -> None:
        apply(self.engine, *documents)

    def try_launch(
        self, name: str, kind: str = TEMPLATE, origin: Origin = BY_HAND, key: str = "", **variables: object
    ) -> LaunchStored | Refusal:
        return self.engine.launch(Wanted(kind, name, variables), origin=origin, key=key, actor="ann")

    def launch(self, name: str = "deploy", kind: str = TEMPLATE, **said: Any) -> Labels:
        """Launch something; get the labels of its graph."""
        answer = self.try_launch(name, kind, **said)
        assert isinstance(answer, LaunchStored), answer
        return self.labels(answer.graph)

    def update(self, name: str = "web") -> Labels:
        return self.launch(name, "source" if "/" in name else "project")

    def ad_hoc(self, name: str = "hosts", module: str = "ping") -> Labels:
        answer = self.engine.launch(Wanted("ad_hoc", name, {}, Options(module=module)), actor="ann")
        assert isinstance(answer, LaunchStored), answer
        return self.labels(answer.graph)

    def linked(self, labels: Mapping[str, int]) -> dict[str, int]:
        """The updates for which the links of a graph stand."""
        with self.store.read() as repo:
            return {row.resource: row.update for row in repo.launches.links(list(labels.values())).values()}

    def states_of(self, labels: Mapping[str, int]) -> dict[str, str]:
        return {label: state.text for label, state in self.states(labels).items()}

    def state(self, task: int) -> State:
        return self.tasks({"it": task})["it"].state

    def result(self, task: int) -> Any:
        with self.store.read() as repo:
            found = repo.read.last_results([task]).get(task)
        return None if found is None else msgspec.json.decode(found)

    def inside(self, task: int) -> Labels:
        """The graph that the last attempt of a task is."""
        with self.store.read() as repo:
            found = repo.graphs.subgraphs([task])
        return self.labels(found[max(found)])

    def lease(self, task: int) -> Lease:
        """Lease one task to the bot, which must be able to have it next."""
        self.settle()
        (lease,) = self.claim(1)
        assert lease.task == task, f"the bot got {lease.task}, not {task}"
        return lease

    def finish(self, lease: Lease, signal: Signal = Signal.SUCCEED, result: object = None) -> None:
        body = None if result is None else msgspec.json.encode(result).decode()
        answer = self.engine.poll(self.poll_command(0, reports=(report(lease, signal, body),)))
        assert isinstance(answer, PollOutcome), answer
        assert isinstance(answer.reports[0], Done), answer
        self.settle()

    def run(self, task: int, signal: Signal = Signal.SUCCEED, result: object = None) -> None:
        """Run one task, which must be the next one."""
        self.finish(self.lease(task), signal, result)

    def run_all(self) -> list[int]:
        """Run whatever there is, one after the other; return the tasks in their order."""
        ran = []
        self.settle()
        while leases := self.claim(1):
            ran.append(leases[0].task)
            self.finish(leases[0])
        return ran

    def cancel(self, labels: Labels) -> None:
        self.engine.cancel(Cancel(graph=labels.graph, actor="ann"))
        self.settle()
