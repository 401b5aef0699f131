"""A server in its own process, with a graph and tokens; `python -m tests.hardening.prepared_server DATABASE SOCKET`.

It prints its address, ids and tokens as one line of JSON, and ends when its input ends. On the socket it answers with a
digest of the database, taken when all work that was begun is done: so a client can see what a request has changed.
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
from tests.hardening.store_digest import settled
from tests.server.running_server import RunningServer, graph, task


class DigestServer(ThreadingUnixStreamServer):
    """Answers each line with a digest of the database; the line `renew` first renews the running task."""

    daemon_threads = True
    target: RunningServer
    url: str
    running: Lease

    def renew(self) -> None:
        """Renew the running task: it must outlast all requests."""
        renewal = Renewal(self.running.task, self.running.attempt, self.running.fence)
        self.target.engine.poll(Poll("b1", "s1", renewals=(renewal,)))


class DigestHandler(StreamRequestHandler):
    """One connection."""

    server: DigestServer

    def handle(self) -> None:
        while line := self.rfile.readline():
            if line == b"renew\n":
                self.server.renew()
            found = settled(self.server.target.engine, self.server.url)
            self.wfile.write(json.dumps(found).encode() + b"\n")


def prepare(server: RunningServer) -> tuple[dict[str, Any], Lease]:
    """Put a graph with a task that runs and one that failed on a server; return the names and tokens."""
    server.hello()
    made = server.submit(graph(a=task(), b=task(), c=task("a")))
    leases = {lease.task: lease for lease in server.claim()}
    running = leases[made.key("a")]
    server.print(running, 0, b"one\ntwo\n")
    server.end(leases[made.key("b")], Signal.FAIL)
    names = {"graph_id": [made.id], "task_id": list(made.tasks.values()), "bot_id": ["b1"], "name": ["default", "lab"]}
    names["token_id"] = [server.token("pool:lab:read").split("_")[2] for _ in range(2)]
    tokens = {
        "anonymous": "",
        "user": server.admin,
        "bot": server.token(kind="bot", pool="default"),
        "run token": server.run_token(running),
    }
    return {"url": server.http.url, "names": names, "tokens": tokens}, running


def main(url: str, path: str) -> None:
    with RunningServer(url, Settings()) as server, DigestServer(path, DigestHandler) as looks:
        shown, looks.running = prepare(server)
        looks.target, looks.url = server, url
        Thread(target=looks.serve_forever, daemon=True).start()
        os.write(1, json.dumps(shown).encode() + b"\n")
        sys.stdin.read()
        looks.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
