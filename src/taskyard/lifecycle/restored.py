"""What a restored database must not keep of the servers and bots that used the original.

Leases stay: they end when they are over, as after a crash, and fences grow with the time, so no attempt that the
original began after the backup can be mistaken for one that is begun now.
"""

from typing import Final

from taskyard.core.states import Millis
from taskyard.core.structs import struct_replace
from taskyard.lifecycle.bot_sessions import replace_all_sessions
from taskyard.lifecycle.commands import NO_SUBJECT
from taskyard.store.connection import Repo

#: How many numbers of the stream of events are left out: more than the original can have given since the backup. So no
#: number means two events, and a follower of the original misses nothing that happens from now on.
NUMBERS_SKIPPED: Final = 1_000_000_000
#: Later than every heartbeat.
_ALWAYS: Final = Millis(2**62)
#: The actor and the action of the audit.
ACTOR: Final = "taskyard restore"
ACTION: Final = "restore"


def begin_anew(repo: Repo, now: Millis, word: str, note: str) -> None:
    """Clear what belongs to the servers and bots of the original; `word` is unique."""
    replace_all_sessions(repo, f"restored-{word}")
    lock = repo.admission.read_lock()
    if lock is not None:
        repo.admission.release_lock(lock.epoch)
    repo.servers.delete_unseen(_ALWAYS)
    repo.tokens.set_signing_keys([])  # the next server makes one: no token of an attempt of the original is valid
    stream = repo.stream.wait()
    repo.stream.write(struct_replace(stream, last=stream.last + NUMBERS_SKIPPED, wanted_until_ms=0))
    repo.webhooks.pause_all()  # the receivers are told of the original, until a person says otherwise
    repo.events.add_audits([(now, ACTOR, ACTION, NO_SUBJECT, note)])
