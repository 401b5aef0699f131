"""Everybody who needs_admission, as the store was at the last look: the memory of admission between two passes.

It is built from the facts once and then told what changed: stirs name the tasks that came, went or gave something
back, and a stir without a task says that bots or pools changed. The rule is that of the core, and nothing here is a
truth of its own: whoever doubts it builds another. It writes nothing; what it finds is an agenda.

It reads and thinks in strides, so that whoever has it can do something else in between, and goes on where it stopped.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from taskyard.core import fleet, ids
from taskyard.core.admission.index import AdmissionIndex
from taskyard.core.admission.rules import FOR_CAPACITY, Contender, Demand, Facts, Held, Pool, unadmitted
from taskyard.core.fleet import BotFacts
from taskyard.core.graph.model import Mutex
from taskyard.core.states import HOLDING, Millis, Reason, State, TaskId
from taskyard.lifecycle.admission.writes import ADMISSIBLE, UNENTERED, Page, PageOutcome, PendingPages
from taskyard.lifecycle.queues import Registry
from taskyard.lifecycle.rows import SERVER_QUEUE
from taskyard.store.connection import Repo
from taskyard.store.repo.admission import ContenderRow, HoldRow, PoolRow

#: How many rows one query reads when everything is read, and how many stirs are taken up then: some 40 ms.
READ_MAX: Final = 2_000
#: How many tasks are judged in one stride: some 20 ms.
JUDGED_MAX: Final = 1_000
#: How many stirs one look takes up. They are looked up one by one, so this is some 20 ms.
STIRS_MAX: Final = 1_000

#: What is noted about a held task: the reason, what it is about, and who is in the way.
Word = tuple[Reason, str | None, TaskId | None]


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """What limits admission, as it is told."""

    capacities: Mapping[str, int | None]
    totals: Mapping[str, int]
    stake_after: Mapping[str, int | None]


class AdmissionSnapshot:
    """The pending and the holding tasks, who could serve them, and what was last noted of each."""

    def __init__(self, terms: AdmissionLimits, registry: Registry, since: Millis) -> None:
        self.since = since  # when everything was last read
        self.now = since
        self.agenda = PendingPages()
        self.whole = True  # whether the last look took up every stir there was
        self.fresh = True  # whether it has not yet been thought through as a whole
        self.reading = True  # whether there is more to read before it can look
        self.unentered: set[str] = set()  # pools with tasks that have to be made contenders before it can look
        self.behind = True  # whether it has to look at every stir before it can think: all is new, or pools changed
        self.thinking = False  # whether there is more to think before all of the agenda can be written
        self.stale = True  # whether something may have changed since it looked
        self.outdated = False  # whether everything has to be read again
        self._terms = terms
        self._registry = registry
        pools = tuple(Pool(name, capacity) for name, capacity in terms.capacities.items())
        self._index = AdmissionIndex(Facts(pools=pools, limits=terms.totals, stake_after=terms.stake_after))
        self._pending: set[TaskId] = set()
        self._holding: set[TaskId] = set()
        self._queue_of: dict[TaskId, int] = {}  # of those that name mutexes
        self._in_queue: defaultdict[int, dict[TaskId, Contender]] = defaultdict(dict)  # the same, by queue
        self._served: dict[int, bool] = {}
        self._waits: set[TaskId] = set()  # pending, and their slice waits for a bot
        self._noted: dict[TaskId, Word] = {}
        self._news: dict[TaskId, Held] = {}  # what thinking has found of those it did not let in
        self._fruitful = False  # whether it has let somebody in since it last began anew
        self._unread: list[State] = sorted(ADMISSIBLE)
        self._read_up_to = 0
        self._stirred: set[int | None] = set()  # when the reading began
        self._doubtful: set[int] = set()  # to be looked at again though nobody stirred them
        self._gone: set[int] = set()  # stirred, and not pending any more
        self._left_out = False  # somebody was not admitted after all, so others may be

    def __len__(self) -> int:
        return len(self._pending) + len(self._holding)

    @property
    def prepared(self) -> bool:
        """Whether all that it has read is thought through."""
        return not (self.reading or self.unentered or self.behind or self.thinking)

    @property
    def next_moment(self) -> Millis | None:
        """When time alone next changes what thinking finds."""
        return self._index.next_moment()

    @property
    def unsettled(self) -> bool:
        """Whether another pass has something to do though nobody stirs it."""
        return bool(self.agenda) or self._left_out

    # Looking.

    @classmethod
    def begin(cls, repo: Repo, registry: Registry, now: Millis, beat: Callable[[], None]) -> "AdmissionSnapshot":
        """Begin to read everything, with whoever holds something; `beat` is called now and then.

        Holders are all read in one look: one that goes from state to state between two looks would not be seen, and
        what it holds would be given away. Whoever is pending may be read later: it is stirred whenever it moves. What
        was stirred by now needs no second look, since all that is read later is newer.
        """
        contest = cls(_terms(repo, _bots(repo)), registry, now)
        contest._stirred = contest._take_up(repo, READ_MAX)
        while not contest.whole:
            contest._stirred |= contest._take_up(repo, READ_MAX)
        contest._note_pools(contest._stirred)
        for state in sorted(HOLDING):
            after = 0
            while page := repo.admission.contenders(state, after, READ_MAX):
                contest._see(repo, page)
                after = page[-1].id
                beat()
        return contest

    def read_on(self, repo: Repo) -> None:
        """Read some more of those who are pending."""
        page = repo.admission.contenders(self._unread[0], self._read_up_to, READ_MAX)
        self._see(repo, page)
        self._read_up_to = page[-1].id if page else 0
        if len(page) < READ_MAX:
            self._unread.pop(0)
            self._read_up_to = 0
        if not self._unread:
            self.reading = False
            self._note_gone(self._stirred)
            self._stirred = set()

    def look(self, repo: Repo, now: Millis) -> None:
        """Look at what changed."""
        self.now, self.stale, self._left_out = max(self.now, now), False, False
        stirred = self._take_up(repo, STIRS_MAX)
        if None in stirred and not self._renew(repo):
            self.outdated = True
            return
        self._note_pools(stirred)
        named = {id for id in stirred if id} | self._doubtful
        self._doubtful.clear()
        for id in named:
            self._forget(_text(id))
        self._see(repo, repo.admission.contenders_among(named))
        self._note_gone(named)
        if self.whole or not self.behind:
            if self.behind:
                self._note_unserved()
            self.behind, self.thinking = False, True

    def entered(self, pool: str) -> None:
        """All tasks of a pool have been made contenders; each of them is stirred."""
        self.unentered.discard(pool)

    # Thinking.

    def think(self, now: Millis, judged_max: int) -> int:
        """Think on about who may go now, and what holds whom for another reason than before; say how many it judged.

        It puts on the agenda whom it lets in as it goes, and what holds the others when it has come to the end.
        """
        self.now = max(self.now, now)
        before = self._index.judged
        while self.thinking and self._index.judged - before < judged_max:
            self._think(before + judged_max - self._index.judged)
        return self._index.judged - before

    def _think(self, judged_max: int) -> None:
        decision = self._index.decide(self.now, judged_max)
        for id in decision.admitted:
            self._pending.discard(id)
            self._holding.add(id)
            self._news.pop(id, None)
        self.agenda.admit.extend(decision.admitted)
        self._news |= {held.id: held for held in decision.held}
        self._fruitful |= bool(decision.admitted)
        if self._index.cut:
            return
        # Asked again it lets nobody else in, but says what those now hold who were let in: a walk does not turn
        # round, and whoever it met before them was judged without them.
        self.thinking, self._fruitful = self._fruitful, False
        if not self.thinking:
            news, self._news, self.fresh = self._news, {}, False
            self._tell(news)
            self.agenda.gone.extend(sorted(self._gone))
            self._gone.clear()

    def _tell(self, news: Mapping[TaskId, Held]) -> None:
        for id, held in news.items():
            felt = (held.reason is Reason.NO_BOT) is not (id in self._waits)
            if felt:
                self.agenda.felt.append(held)
            elif self._noted.get(id) != _word(held):
                self.agenda.held.append(held)

    def page(self, page_max: int) -> Page | None:
        """Take the next page that can be written; None if there is none before it has thought on, or none at all."""
        if self.thinking and len(self.agenda.admit) >= page_max:
            return self.agenda.moves(page_max)
        return self.agenda.page(page_max) if self.agenda and self.prepared else None

    # Learning what became of the agenda.

    def learn(self, page: Page, carried: PageOutcome) -> None:
        """A page was written."""
        self.stale = True
        for id in carried.admitted:
            self._noted.pop(id, None)
            self._waits.discard(id)
        for id in page.admit:
            if id not in carried.admitted:
                self._leave_out(id, id in carried.canceled)
        for held in carried.noted:
            self._noted[held.id] = _word(held)
        for held in page.felt:
            (self._waits.add if held.reason is Reason.NO_BOT else self._waits.discard)(held.id)

    def _leave_out(self, id: TaskId, canceled: bool) -> None:
        self._forget(id)
        self._left_out = True
        # Whose graph is being canceled will be stirred by that. Whoever else was not as it seemed is looked at again.
        if not canceled:
            self._doubtful.add(ids.key_of(id))

    # How it is done.

    def _take_up(self, repo: Repo, count: int) -> set[int | None]:
        """Read stirs; they are dropped when what they lead to is done."""
        stirs = repo.admission.dirty(self.agenda.stirs[-1] if self.agenda.stirs else 0, count)
        self.whole = len(stirs) < count
        self.agenda.stirs.extend(number for number, _ in stirs)
        return {task for _, task in stirs}

    def _note_gone(self, stirred: Iterable[int | None]) -> None:
        """Whoever is not pending any more has no reason to be held, whatever was noted."""
        self._gone |= {id for id in stirred if id and _text(id) not in self._pending}

    def _note_pools(self, stirred: Collection[int | None]) -> None:
        """Let nobody in under new terms before everybody is counted who has something by the old ones."""
        self.behind |= None in stirred or UNENTERED in stirred
        if UNENTERED in stirred:
            self.unentered |= {pool for pool, capacity in self._terms.capacities.items() if capacity is not None}

    def _note_unserved(self) -> None:
        """Whoever holds mutexes and waits for a bot that is gone has to give them back."""
        for queue, served in self._served.items():
            holding = (task for id, task in self._in_queue[queue].items() if id in self._holding)
            self.agenda.back.extend(unadmitted(replace(task, served=served) for task in holding))

    def _see(self, repo: Repo, rows: Sequence[ContenderRow]) -> None:
        """Take tasks as they are."""
        rows = [row for row in rows if row.state in HOLDING or row.state in ADMISSIBLE]
        excluding = [row.id for row in rows if row.is_constrained]
        mutexes, limits = repo.admission.mutexes_of(excluding), repo.admission.limits_of(excluding)
        holds = repo.admission.holds_of([row.id for row in rows if row.state in ADMISSIBLE])
        self._ask_served(repo, {row.queue for row in rows if row.id in mutexes})
        pools = {queue: self._registry.queue(repo, queue).pool for queue in {row.queue for row in rows}}
        for row in rows:
            hold, what = holds.get(row.id), (mutexes.get(row.id, ()), limits.get(row.id, ()))
            self._seat(row, self._contender(row, pools[row.queue], what, hold), hold)

    def _contender(
        self,
        row: ContenderRow,
        pool: str,
        what: tuple[tuple[Mutex, ...], tuple[Demand, ...]],
        hold: HoldRow | None,
    ) -> Contender:
        mutexes, limits = what
        since = hold.since_ms if hold is not None and hold.reason in FOR_CAPACITY and hold.name == pool else None
        served = not mutexes or self._served[row.queue]
        return Contender(
            _text(row.id),
            row.priority,
            row.created_ms,
            pool,
            row.weight,
            mutexes,
            limits,
            row.not_before_ms,
            served,
            since,
            None if hold is None else hold.mutex_since_ms,
        )

    def _seat(self, row: ContenderRow, task: Contender, hold: HoldRow | None) -> None:
        if task.mutexes:
            self._queue_of[task.id] = row.queue
            self._in_queue[row.queue][task.id] = task
        if row.state in HOLDING:
            self._holding.add(task.id)
            self._pending.discard(task.id)
            self._index.take(task.admitted(row.moved_ms))
            return
        self._pending.add(task.id)
        self._holding.discard(task.id)
        self._gone.discard(row.id)
        self._index.arrive(task)
        if row.waits_since_ms is not None:
            self._waits.add(task.id)
        if hold is not None:
            self._noted[task.id] = (hold.reason, hold.name, None if hold.by is None else _text(hold.by))

    def _forget(self, id: TaskId) -> None:
        """The task is not known to contend."""
        self._index.leave(id)
        self._index.give_back(id)
        self._pending.discard(id)
        self._holding.discard(id)
        self._waits.discard(id)
        self._noted.pop(id, None)
        self._news.pop(id, None)
        queue = self._queue_of.pop(id, None)
        if queue is not None:
            self._in_queue[queue].pop(id, None)

    # Bots and pools.

    def _renew(self, repo: Repo) -> bool:
        """Take bots and pools as they are; False if it takes more than that."""
        bots = _bots(repo)
        before, self._terms = self._terms, _terms(repo, bots)
        if self._terms.stake_after != before.stake_after:
            return False
        for name, capacity in self._terms.capacities.items():
            if name not in before.capacities or before.capacities[name] != capacity:
                self._index.set_capacity(Pool(name, capacity))
        for name, total in self._terms.totals.items():
            if before.totals.get(name) != total:
                self._index.set_limit_total(name, total)
        self._renew_served(repo, bots)
        return True

    def _renew_served(self, repo: Repo, bots: Collection[BotFacts]) -> None:
        before, self._served = self._served, {}
        for queue in [queue for queue, tasks in self._in_queue.items() if not tasks]:
            del self._in_queue[queue]
        for queue, tasks in self._in_queue.items():
            served = self._served[queue] = self._is_served(repo, queue, bots)
            if before[queue] is not served:
                for id in tasks:
                    self._index.serve(id, served)

    def _ask_served(self, repo: Repo, queues: Collection[int]) -> None:
        unknown = [queue for queue in queues if queue not in self._served]
        bots = _bots(repo) if unknown else ()
        for queue in unknown:
            self._served[queue] = self._is_served(repo, queue, bots)

    def _is_served(self, repo: Repo, queue: int, bots: Collection[BotFacts]) -> bool:
        dimensions = self._registry.queue(repo, queue).dimensions
        return queue == SERVER_QUEUE or fleet.served(dimensions, bots)


def _bots(repo: Repo) -> tuple[BotFacts, ...]:
    return tuple(bot.facts for bot in repo.bots.read_all())


def _terms(repo: Repo, bots: Collection[BotFacts]) -> AdmissionLimits:
    capacities = {pool.name: _capacity(pool, bots) for pool in repo.admission.pools()}
    return AdmissionLimits(capacities, repo.admission.named_limits(), repo.admission.stake_after())


def _capacity(pool: PoolRow, bots: Iterable[BotFacts]) -> int | None:
    return fleet.slots(pool.name, bots) if pool.from_bots else pool.capacity


def _word(held: Held) -> Word:
    return (held.reason, held.name, held.by)


def _text(key: int) -> TaskId:
    return TaskId(ids.text_of(ids.Key(key)))
