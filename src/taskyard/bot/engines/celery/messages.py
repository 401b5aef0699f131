"""What bots and their Celery workers say to one another, as JSON.

An attempt goes to a worker as the argument of a Celery task. Everything else goes to inboxes: one queue of each bot and
of each worker, which end with them, because whatever is not answered is said again.

A worker speaks to its bot as a bot speaks to its server, with the same reports, renewals and pieces of output. So a
lease at a worker counts from when the worker sent its request, and no clocks are compared, except for the one moment
that comes with a start: `ServedBot` in `worker.py` says how.
"""

from typing import Final

import msgspec

from taskyard.wire.bot_protocol import Begun, Lease, Message, Output, Polled, Renewal, Report

#: The name of the Celery task, and of the control command with which bots make themselves known to workers.
TASK: Final = "taskyard.run_attempt"
GREETING: Final = "taskyard_bot"


class Start(Message, frozen=True):
    """An attempt to run. Times are of the bot's monotonic clock."""

    bot: str  # the folder of the bot, which is the same for all of its instances
    inbox: str
    url: str
    pool: str
    until: float  # the end of the lease
    lease: Lease
    received: float  # when the bot got the lease
    deadline: float | None = None


class Trouble(Message, frozen=True):
    """A problem of a worker that people should see; of one attempt, if it is about one."""

    text: str
    task: str | None = None
    attempt: int | None = None


class WorkerPoll(Message, frozen=True):
    """What a worker has to say; without any of it, that it lives."""

    worker: str
    inbox: str
    number: int  # of this message; the answer names it
    slots: int
    dimensions: dict[str, list[str]] = {}
    reports: list[Report] = []
    renewals: list[Renewal] = []
    outputs: list[Output] = []
    begun: list[Begun] = []
    dropped: list[Begun] = []  # attempts that it does not run: another worker may have begun them
    troubles: list[Trouble] = []


class WorkerReply(Message, frozen=True):
    """The answer to a message of a worker, once all that it reports is stored by the server; or a stop."""

    clock: float  # the bot's monotonic clock
    number: int = 0  # 0: it answers nothing
    polled: Polled = Polled()
    stops: list[Begun] = []  # attempts that have to end


def run_id(lease: Lease) -> str:
    """Name an attempt as a Celery task: other fences of the same attempt, after an adoption, do not matter."""
    return f"{lease.task}-{lease.attempt}"


def encode(message: msgspec.Struct) -> bytes:
    """Encode a message."""
    return msgspec.json.encode(message)


START: Final = msgspec.json.Decoder(Start)
WORKER_POLL: Final = msgspec.json.Decoder(WorkerPoll)
WORKER_REPLY: Final = msgspec.json.Decoder(WorkerReply)
