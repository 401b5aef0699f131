"""A server in a process of its own, with something on it: `python -m tests.hardening.stage DATABASE SOCKET`.

It tells where it is and which tokens it has as one line of JSON, and ends with its input. Whoever asks on the socket is
told what the store holds, once everything that was begun is done: so a stranger can see what a request has changed.
"""

import json
import os
import sys
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from threading import Thread
from typing import Any

from taskyard.core.states import Signal
from taskyard.lifecycle.commands import Lease, Poll, Renewal
from taskyard.server.settings import Settings
from tests.hardening.fingerprint import settled
from tests.server.yard import Yard, graph, task


class Looks(ThreadingUnixStreamServer):
    """Tells what the store holds, to each line that is asked; the running task is renewed first if the line says so."""

    daemon_threads = True
    yard: Yard
    url: str
    running: Lease

    def renew(self) -> None:
        """Keep the running task: it has to outlast all questions."""
        renewal = Renewal(self.running.task, self.running.attempt, self.running.fence)
        self.yard.engine.poll(Poll("b1", "s1", renewals=(renewal,)))


class Look(StreamRequestHandler):
    """One who asks."""

    server: Looks

    def handle(self) -> None:
        while line := self.rfile.readline():
            if line == b"renew\n":
                self.server.renew()
            found = settled(self.server.yard.engine, self.server.url)
            self.wfile.write(json.dumps(found).encode() + b"\n")


def staged(yard: Yard) -> tuple[dict[str, Any], Lease]:
    """Put a graph with a task that runs and one that failed on a server; tell the names and tokens there are."""
    yard.hello()
    made = yard.submit(graph(a=task(), b=task(), c=task("a")))
    leases = {lease.task: lease for lease in yard.claim()}
    running = leases[made.key("a")]
    yard.print(running, 0, b"one\ntwo\n")
    yard.end(leases[made.key("b")], Signal.FAIL)
    names = {"graph_id": [made.id], "task_id": list(made.tasks.values()), "bot_id": ["b1"], "name": ["default", "lab"]}
    names["token_id"] = [yard.token("pool:lab:read").split("_")[2] for _ in range(2)]
    tokens = {
        "anonymous": "",
        "user": yard.admin,
        "bot": yard.token(kind="bot", pool="default"),
        "run token": yard.run_token(running),
    }
    return {"url": yard.server.url, "names": names, "tokens": tokens}, running


def main(url: str, path: str) -> None:
    with Yard(url, Settings()) as yard, Looks(path, Look) as looks:
        told, looks.running = staged(yard)
        looks.yard, looks.url = yard, url
        Thread(target=looks.serve_forever, daemon=True).start()
        os.write(1, json.dumps(told).encode() + b"\n")
        sys.stdin.read()
        looks.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
