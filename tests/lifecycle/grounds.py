"""A yard where people cancel and rerun, promises are kept and the clock is heard; and short words for graphs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from taskyard.core.fleet import SWEEP_MS
from taskyard.core.states import Reason, Signal, State
from taskyard.lifecycle import cancel as cancels
from taskyard.lifecycle import rerun as reruns
from taskyard.lifecycle.bot_sessions import goodbye
from taskyard.lifecycle.commands import BulkOutcome, Cancel, Done, Goodbye, Lease, NeedsSearch, Refusal, Rerun
from taskyard.lifecycle.continuations import run_page
from taskyard.lifecycle.idempotency import carry_out_keyed
from taskyard.lifecycle.selection import SelectedPages
from taskyard.lifecycle.server_tasks import run_server_tasks
from taskyard.lifecycle.timeouts import apply_timeouts, heartbeat, mark_missing_bots
from taskyard.store.rows import Continuation
from tests.lifecycle.yard import Labels, Yard

#: More dependents than fit into two pages.
MANY = 2_500
#: More than any test has.
ALL = 1_000_000


class Grounds(Yard):
    """A yard with more going on."""

    # People.

    def cancel(
        self, task: int | None = None, graph: int | None = None, subtree: bool = False
    ) -> Done | Refusal | BulkOutcome:
        return self.wish(Cancel(task, graph, subtree, "ann"))

    def rerun(self, task: int | None = None, graph: int | None = None) -> Done | Refusal | BulkOutcome:
        return self.wish(Rerun(task, graph, "ann"))

    def wish(self, command: Cancel | Rerun) -> Done | Refusal | BulkOutcome:
        """Ask for something; if it reaches too far, find out how far, and ask again."""
        answer = self.ask(command)
        if isinstance(answer, NeedsSearch):
            with self.store.read() as repo:
                seen = cancels.find(repo, command) if isinstance(command, Cancel) else reruns.find(repo, command)
            answer = self.ask(command, seen.cut())
        assert not isinstance(answer, NeedsSearch), "nobody has changed anything meanwhile"
        return answer

    def ask(
        self, command: Cancel | Rerun, found: SelectedPages | None = None
    ) -> Done | Refusal | BulkOutcome | NeedsSearch:
        room: Any = cancels.cancel if isinstance(command, Cancel) else reruns.rerun
        answers = self.do(
            lambda transaction: carry_out_keyed(transaction, [command], lambda *asked: room(*asked, found))
        )
        return answers[0]

    def audits(self, subject: int) -> list[tuple[str, str, str]]:
        with self.store.read() as repo:
            return [(one.actor, one.action, one.note) for one in repo.events.audits_of(subject, ALL)]

    # What the engine will do.

    def notes(self) -> list[Continuation]:
        with self.store.read() as repo:
            return repo.continuations.after(-1, ALL)

    def take_up(self, note: Continuation) -> bool | None:
        return self.do(lambda transaction: run_page(transaction, note.id))

    def run_continuations(self) -> int:
        """Take up notes until there are none; say how many pages that took."""
        pages = 0
        while notes := self.notes():
            for note in notes:
                self.take_up(note)
                pages += 1
        return pages

    def sweep(self) -> int:
        """Hear the clock once."""
        self.do(heartbeat)
        dealt = self.do(apply_timeouts)
        self.do(mark_missing_bots)
        return dealt

    def wait(self, ms: int, awake: Iterable[str] = (), session: str = "s1") -> None:
        """Let time pass with all its sweeps; the bots named here are heard of meanwhile."""
        until = self.now + ms
        while self.now < until:
            self.later(min(SWEEP_MS, until - self.now))
            for bot in awake:
                self.poll(bot, 0, session)
            self.sweep()

    def serve_own(self) -> int:
        return self.do(run_server_tasks)

    # Bots.

    def start(self, bot: str, labels: Mapping[str, int], count: int = 256) -> dict[str, Lease]:
        """Let a bot take what it gets; name the leases by label."""
        names = {id: label for label, id in labels.items()}
        return {names[lease.task]: lease for lease in self.claim(bot, count)}

    def fail(self, bot: str, lease: Lease) -> Done | Refusal:
        return self.end(bot, lease, Signal.FAIL, exit_code=1)

    def run(self, bot: str, labels: Mapping[str, int], *failing: str) -> list[str]:
        """Let a bot run everything that is ready, once; name what it ran."""
        leases = self.start(bot, labels)
        for label, lease in leases.items():
            assert isinstance(self.fail(bot, lease) if label in failing else self.end(bot, lease), Done)
        return sorted(leases)

    def goodbye(self, bot: str, session: str = "s1") -> None:
        self.do(lambda transaction: goodbye(transaction, [Goodbye(bot, session)]))

    def bot_events(self, bot: str) -> list[str]:
        """Name what happened to a bot, in order."""
        return [kind for kind, _ in self.bot_notes(bot)]

    def bot_notes(self, bot: str) -> list[tuple[str, str]]:
        """Name what happened to a bot, in order, with what was noted of it."""
        with self.store.read() as repo:
            return [(row[3], row[6]) for row in reversed(repo.bots.events(bot, ALL))]

    # Looking.

    def words(self, labels: Mapping[str, int]) -> dict[str, str]:
        """Say where tasks are."""
        return {label: str(state) for label, state in self.states(labels).items()}

    def why(self, id: int) -> tuple[State, Reason]:
        """Say where a task is, and why."""
        task = self.task(id)
        return task.state, Reason(task.reason)

    def census(self, labels: Mapping[str, int]) -> dict[str, int]:
        """Count tasks by where they are."""
        words = list(self.words(labels).values())
        return {word: words.count(word) for word in sorted(set(words))}

    def story(self, id: int) -> list[str]:
        """Tell where a task or a graph has been."""
        with self.store.read() as repo:
            return [event.target for event in repo.events.of(id, 0, ALL)]

    def verdict(self, labels: Labels) -> str:
        return str(self.graph(labels.graph).state)


def node(
    *requires: str, failure: Sequence[str] = (), always: Sequence[str] = (), **fields: object
) -> dict[str, object]:
    """A node of a graph; fields of the node are told from those of its task."""
    edges: list[object] = [*requires]
    edges += [{"task": label, "on": "failure"} for label in failure]
    edges += [{"task": label, "on": "always"} for label in always]
    own = {name: fields.pop(name) for name in ("join", "on_impossible", "reruns") if name in fields}
    return {"requires": edges, "task": {"payload": {"command": ["true"]}} | fields} | own


def graph(**nodes: dict[str, object]) -> dict[str, object]:
    """A graph of nodes."""
    return {"tasks": nodes}


def star(count: int = MANY, **fields: Any) -> dict[str, object]:
    """A task with many dependents."""
    return {"tasks": {"hub": node(), **{f"ray{place}": node("hub", **fields) for place in range(count)}}}


def rays(labels: Labels) -> dict[str, int]:
    """The dependents of a star."""
    return {label: id for label, id in labels.items() if label != "hub"}


def noop(*requires: str, **fields: Any) -> dict[str, object]:
    """A node that does nothing."""
    return node(*requires, payload={"noop": True}, **fields)
