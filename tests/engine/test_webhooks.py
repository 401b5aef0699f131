"""Webhooks: signed, in order, at least once; no receiver holds up another, and none is inside."""

import base64
import hashlib
import hmac
import json
import socket
import ssl
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address, ip_network
from threading import Event, Lock, Thread
from typing import Any

import pytest

from taskyard.bus import webhooks as http_side
from taskyard.bus.webhooks import ForbiddenAddress, Receiver, is_inside, secret_fault, url_fault
from taskyard.core import webhooks as policy
from taskyard.engine.engine import Engine
from taskyard.engine.keyring import add_key
from taskyard.engine.webhooks import TRY_ID, WebhookSpec
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.webhooks import target_of
from taskyard.store.repo.webhooks import DeadDelivery
from tests.cli.waiting import until
from tests.each_row import each_row
from tests.engine.harness import graph, noop

SECRET = f"whsec_{base64.b64encode(b'k' * 32).decode()}"
LOOPBACK = (ip_network("127.0.0.0/8"),)


class Hook:
    """A real receiver on this machine. `answer` says how it answers the n-th request for an event."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, Any]]] = []  # in order: ids and events
        self.faults: list[str] = []  # of signatures
        self.answer: Callable[[str, int], int] = lambda _id, _count: 204
        self._counts: dict[str, int] = defaultdict(int)
        self._lock = Lock()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = hook.take(dict(self.headers), body)
                with suppress(OSError):
                    self.send_response(status)
                    self.send_header("Content-Length", "0")
                    if status in (301, 302):
                        self.send_header("Location", f"{hook.url}elsewhere")
                    self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        self._thread = Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def take(self, headers: dict[str, str], body: bytes) -> int:
        id, at = headers["webhook-id"], headers["webhook-timestamp"]
        wanted = base64.b64encode(hmac.new(b"k" * 32, f"{id}.{at}.".encode() + body, hashlib.sha256).digest()).decode()
        with self._lock:
            if headers["webhook-signature"] != f"v1,{wanted}":
                self.faults.append(id)
            self._counts[id] += 1
            count = self._counts[id]
        status = self.answer(id, count)
        with self._lock:
            self.got.append((id, json.loads(body)))
        return status

    @property
    def ids(self) -> list[str]:
        with self._lock:
            return [id for id, _ in self.got]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def hooks() -> Iterator[list[Hook]]:
    made = [Hook(), Hook()]
    yield made
    for one in made:
        one.close()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr(policy, "PAUSE_MIN_MS", 10)
    monkeypatch.setattr(policy, "PAUSE_MAX_MS", 40)


@contextmanager
def running(url: str, tmp_path: Any, name: str = "") -> Iterator[Engine]:
    """An engine that may send to this machine."""
    keys = tmp_path / "secrets.key"
    if not keys.exists():
        add_key(keys)
    with Engine.open(url, name=name, secrets_key_file=keys, webhook_networks=LOOPBACK) as engine:
        yield engine


def set_hook(engine: Engine, name: str, url: str, **more: Any) -> None:
    assert engine.webhooks.save(WebhookSpec(name, url, secret=SECRET, **more), actor="me") is None


def run(engine: Engine, *labels: str) -> str:
    """Run a graph of tasks that need no bot; return its id when it is finished."""
    made = engine.submit(graph(**{label: noop() for label in labels or ("a",)}))
    assert not isinstance(made, Refusal)
    id = f"{made.graph:016x}"
    until(lambda: getattr(engine.graph(id), "settled", False), "the graph settles")
    return id


def kinds(hook: Hook, graph_id: str) -> list[str]:
    return [event["kind"] for _, event in hook.got if event["graph_id"] == graph_id]


def backlog(engine: Engine, name: str) -> int:
    with engine.store.read() as repo:
        positions = {one.name: one.position for one in repo.targets.all()}
        return repo.stream.read().last - positions[target_of(name)]


def test_every_event_is_delivered_signed_and_in_order(database_url: str, tmp_path: Any, hooks: list[Hook]) -> None:
    hook, other = hooks
    with running(database_url, tmp_path) as engine:
        set_hook(engine, "all", hook.url)
        set_hook(engine, "ends", other.url, kinds=("graph.finished",))
        made = run(engine, "a", "b")
        later = run(engine)
        until(lambda: "graph.finished" in kinds(hook, later), "the end is delivered")
        until(lambda: len(other.got) >= 2, "the ends are delivered")
        with engine.store.read() as repo:
            wanted = [f"{made}-{one.number}" for one in repo.events.in_graph(int(made, 16), 0, 100)]
        until(lambda: backlog(engine, "all") == 0, "nothing waits")
    assert [id for id in hook.ids if id.startswith(made)] == wanted
    ends = [(event["graph_id"], event["kind"]) for _, event in other.got]
    assert sorted(ends) == sorted((one, "graph.finished") for one in (made, later))
    assert hook.faults == other.faults == []
    id, event = hook.got[0]
    assert (event["id"], event["number"]) == (id, int(id.rpartition("-")[2]))


def test_a_receiver_that_is_dead_or_slow_holds_up_no_other(sqlite_url: str, tmp_path: Any, hooks: list[Hook]) -> None:
    """What the dead one misses waits for it, and arrives once it is back, without a gap."""
    hook, slow = hooks
    release = Event()
    slow.answer = lambda _id, _count: 204 if release.wait(60) else 500
    with socket.create_server(("127.0.0.1", 0)) as free:
        dead_port = free.getsockname()[1]
    with running(sqlite_url, tmp_path) as engine:
        set_hook(engine, "good", hook.url)
        set_hook(engine, "slow", slow.url)
        set_hook(engine, "dead", f"http://127.0.0.1:{dead_port}/")
        made = run(engine)
        until(lambda: "graph.finished" in kinds(hook, made), "the good one gets all")
        assert backlog(engine, "dead") > 0
        until(lambda: state(engine, "dead").error is not None, "the failure is stored")
        release.set()
        until(lambda: "graph.finished" in kinds(slow, made), "the slow one gets all")
        set_hook(engine, "dead", hook.url)  # the receiver is at another address now
        until(lambda: backlog(engine, "dead") == 0, "what waited is delivered")
        assert state(engine, "dead").error is None
    once = [id for id in slow.ids if id.startswith(made)]
    assert sorted(hook.ids) == sorted(once * 2)


def state(engine: Engine, name: str) -> Any:
    with engine.store.read() as repo:
        return next(one for one in repo.webhooks.all() if one.name == name)


def dead(engine: Engine, name: str) -> list[DeadDelivery]:
    with engine.store.read() as repo:
        return repo.webhooks.dead(name, "", 10)


def test_what_a_receiver_refuses_is_put_aside_and_can_be_sent_again(
    sqlite_url: str, tmp_path: Any, hooks: list[Hook]
) -> None:
    hook = hooks[0]
    hook.answer = lambda id, _count: 400 if id.endswith("-1") else 200
    with running(sqlite_url, tmp_path) as engine:
        set_hook(engine, "picky", hook.url)
        made = run(engine)
        until(lambda: "graph.finished" in kinds(hook, made), "later events are delivered")
        until(lambda: state(engine, "picky").dead == 1, "one is put aside")
        assert hook.ids.count(f"{made}-1") == policy.REFUSALS_MAX
        (one,) = dead(engine, "picky")
        assert (one.id, one.error) == (f"{made}-1", "the receiver answered 400")
        assert engine.webhooks.send_again("picky", [], actor="me") == 1
        until(lambda: dead(engine, "picky")[0].again == 0, "it is refused once more")
        assert hook.ids.count(f"{made}-1") == policy.REFUSALS_MAX + 1
        hook.answer = lambda _id, _count: 200
        assert engine.webhooks.send_again("picky", [one.id], actor="me") == 1
        until(lambda: dead(engine, "picky") == [], "it arrives")


def test_redirects_are_not_followed_and_errors_are_tried_again(
    sqlite_url: str, tmp_path: Any, hooks: list[Hook]
) -> None:
    hook = hooks[0]
    hook.answer = lambda _id, count: {1: 302, 2: 503}.get(count, 200)
    with running(sqlite_url, tmp_path) as engine:
        set_hook(engine, "moody", hook.url)
        made = run(engine)
        until(lambda: backlog(engine, "moody") == 0 and "graph.finished" in kinds(hook, made), "all are delivered")
        ids = [id for id in hook.ids if id.startswith(made)]
        assert all(ids.count(id) == 3 for id in ids)
        assert list(dict.fromkeys(ids)) == sorted(set(ids), key=lambda id: int(id.rpartition("-")[2]))
        assert state(engine, "moody").dead == 0


def test_events_are_kept_while_a_webhook_is_paused_or_its_server_is_down(
    database_url: str, tmp_path: Any, hooks: list[Hook]
) -> None:
    hook = hooks[0]
    with running(database_url, tmp_path) as engine:
        set_hook(engine, "later", hook.url, paused=True)
        made = run(engine)
        until(lambda: backlog(engine, "later") > 0, "events wait")
    assert hook.got == []
    with running(database_url, tmp_path) as engine:
        set_hook(engine, "later", hook.url)
        until(lambda: "graph.finished" in kinds(hook, made), "they arrive")
        assert len(set(hook.ids)) == len(hook.ids), "each once, since nothing failed"


def test_of_two_servers_one_sends_and_the_other_takes_over(postgres_url: str, tmp_path: Any, hooks: list[Hook]) -> None:
    hook = hooks[0]
    with running(postgres_url, tmp_path, "one") as first:
        set_hook(first, "all", hook.url)
        made = run(first)
        until(lambda: "graph.finished" in kinds(hook, made), "the first sends")
        with running(postgres_url, tmp_path, "two") as second:
            later = run(second)
            until(lambda: "graph.finished" in kinds(hook, later), "one of them sends")
            assert len(set(hook.ids)) == len(hook.ids), "not both"
            first.stop()
            last = run(second)
            until(lambda: "graph.finished" in kinds(hook, last), "the second sends")
            assert len(set(hook.ids)) == len(hook.ids)


def test_a_stop_does_not_wait_for_a_receiver_and_the_event_is_sent_again(
    sqlite_url: str, tmp_path: Any, hooks: list[Hook]
) -> None:
    hook, began, release = hooks[0], Event(), Event()

    def hang(_id: str, _count: int) -> int:
        began.set()
        return 200 if release.wait(60) else 500

    hook.answer = hang
    with running(sqlite_url, tmp_path) as engine:
        set_hook(engine, "slow", hook.url)
        made = run(engine)
        assert began.wait(60)
    assert hook.got == [], "the server has stopped, and the receiver still works"
    release.set()
    with running(sqlite_url, tmp_path) as engine:
        until(lambda: "graph.finished" in kinds(hook, made), "all are delivered")
    until(lambda: len(hook.ids) > len(set(hook.ids)), "the first one arrives twice")


def test_without_a_webhook_nothing_waits(sqlite_url: str, tmp_path: Any, hooks: list[Hook]) -> None:
    with running(sqlite_url, tmp_path) as engine:
        set_hook(engine, "gone", hooks[0].url)
        assert engine.webhooks.delete("gone", actor="me") is None
        run(engine)
        engine.relay.run_once()
        with engine.store.read() as repo:
            assert repo.targets.all() == []
            assert repo.secrets.read("", "webhook gone") is None
        refusal = engine.webhooks.delete("gone", actor="me")
        assert isinstance(refusal, Refusal)
        assert refusal.code is Code.NOT_FOUND


def test_a_webhook_of_a_pool_gets_only_events_of_graphs_with_tasks_of_that_pool(
    sqlite_url: str, tmp_path: Any, hooks: list[Hook]
) -> None:
    hook = hooks[0]
    with running(sqlite_url, tmp_path) as engine:
        set_hook(engine, "lab", hook.url, pool="lab")
        run(engine)
        lab = {"requires": [], "task": {"payload": {"command": ["true"]}, "dimensions": {"pool": "lab"}}}
        made = engine.submit(graph(a=lab))
        assert not isinstance(made, Refusal)
        until(lambda: bool(hook.got), "something is delivered")
        until(lambda: backlog(engine, "lab") == 0, "all are looked at")
    assert {event["graph_id"] for _, event in hook.got} == {f"{made.graph:016x}"}


def test_a_try_says_what_the_receiver_answers(sqlite_url: str, tmp_path: Any, hooks: list[Hook]) -> None:
    hook = hooks[0]
    with running(sqlite_url, tmp_path) as engine:
        set_hook(engine, "new", hook.url, paused=True)
        tried = engine.webhooks.try_out("new")
        assert not isinstance(tried, Refusal)
        assert (tried.status, tried.error, hook.ids, hook.faults) == (204, "", [TRY_ID], [])
        hook.answer = lambda _id, _count: 404
        tried = engine.webhooks.try_out("new")
        assert not isinstance(tried, Refusal)
        assert (tried.status, tried.error) == (404, "the receiver answered 404")


# Addresses.


@each_row(
    ("address", "inside"),
    [
        ("8.8.8.8", False),
        ("2606:4700::1", False),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("0.0.0.0", True),  # noqa: S104 - nothing is bound
        ("10.1.2.3", True),
        ("172.31.0.1", True),
        ("192.168.0.1", True),
        ("169.254.169.254", True),  # metadata of clouds
        ("100.64.0.1", True),  # addresses of carriers
        ("224.0.0.1", True),
        ("255.255.255.255", True),
        ("::1", True),
        ("::", True),
        ("fe80::1", True),
        ("fd00::1", True),
        ("ff02::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:8.8.8.8", False),
        ("64:ff9b::7f00:1", True),  # 127.0.0.1 behind a gateway
        ("64:ff9b::808:808", False),
        ("2002:7f00:1::", True),  # 127.0.0.1 through a tunnel
        ("2001:0:0:0:0:0:80ff:fffe", True),
    ],
)
def test_an_address_is_inside_unless_the_public_internet_has_it(address: str, inside: bool) -> None:
    assert is_inside(ip_address(address), ()) == inside
    assert not is_inside(ip_address(address), [ip_network("0.0.0.0/0"), ip_network("::/0")])


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "127.1", "[::1]", "[::ffff:7f00:1]"]
)
def test_nothing_is_sent_to_an_address_inside_however_it_is_written(hooks: list[Hook], host: str) -> None:
    port = hooks[0].server.server_port
    with pytest.raises((ForbiddenAddress, socket.gaierror)):
        Receiver(f"http://{host}:{port}/", ()).post(b"{}", {})
    assert hooks[0].got == []


def test_one_address_inside_forbids_all_and_a_name_is_resolved_only_once(
    hooks: list[Hook], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that has a public address first and another one later, as an attacker's would."""
    asked: list[str] = []
    answers: list[Sequence[str]] = [["8.8.8.8", "127.0.0.1"], ["127.0.0.1"]]

    def resolve(host: str, port: int, **_: object) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in answers[len(asked) - 1]]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(ForbiddenAddress, match=r"127\.0\.0\.1"):
        http_side.checked_addresses("two.example", 80, ())
    assert asked == ["two.example"]
    assert http_side.checked_addresses("two.example", 80, LOOPBACK) == ["127.0.0.1"]


def test_a_receiver_that_never_ends_its_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_side, "ANSWER_MAX_S", 0.3)
    ended = Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            opened, _ = listener.accept()
            with opened, suppress(OSError):
                opened.recv(65_536)
                opened.sendall(b"HTTP/1.1 200 OK\r\n")
                while not ended.wait(0.05):
                    opened.sendall(b"X-More: 1\r\n")

        Thread(target=drip, daemon=True).start()
        with pytest.raises(TimeoutError, match="longer than"):
            Receiver(f"http://127.0.0.1:{listener.getsockname()[1]}/", LOOPBACK).post(b"{}", {})
        ended.set()


def test_a_certificate_that_is_not_of_the_name_is_refused(hooks: list[Hook]) -> None:
    """A receiver that speaks no TLS stands for one that cannot prove its name."""
    url = f"https://127.0.0.1:{hooks[0].server.server_port}/"
    with pytest.raises(ssl.SSLError):
        Receiver(url, LOOPBACK).post(b"{}", {})


@each_row(
    ("url", "fault"),
    [
        ("https://ci.example.org/hook?x=1", ""),
        ("http://[2001:db8::1]:8080/", ""),
        ("ftp://a/", "must begin with"),
        ("https:///path", "must begin with"),
        ("https://user:password@a/", "must not have a user"),
        ("https://a/#b", "must not have a fragment"),
        ("https://a:99999/", "is not a URL"),
        ("https://a b/", "printable"),
        ("https://a/\r\nX: y", "printable"),
        ("https://\u00e9/", "printable"),
        (f"https://a/{'b' * 2_000}", "printable"),
    ],
)
def test_a_url_that_cannot_be_a_receiver_is_refused(url: str, fault: str) -> None:
    found = url_fault(url)
    assert (found is None) if not fault else (found is not None and fault in found)


def test_a_secret_is_as_the_specification_of_signatures_has_it() -> None:
    assert secret_fault(SECRET) is None
    for bad in ("", "k" * 32, "whsec_", "whsec_short", f"whsec_{'A' * 200}", SECRET[:-1] + "!"):
        assert secret_fault(bad), bad
