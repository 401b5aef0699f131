"""Stores of files, a local folder and a bucket of a real S3 server, and the garbage collector on both."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import obstore
import pytest

import taskyard.files.s3 as s3_store
from taskyard.files import local
from taskyard.files.digests import CHUNK_BYTES, TreeFile, make_tree, sha256, tree_text
from taskyard.files.gc import DigestFilter, collect_garbage
from taskyard.files.local import LocalFiles
from taskyard.files.store import FileStore, Space, StoreBroken, blobs, pool_key, trees
from taskyard.sdk import Client
from taskyard.sdk.local_inputs import tree_of
from taskyard.server.file_store import open_store
from taskyard.server.settings import Settings
from tests.cli.waiting import DEADLINE_SECONDS, until
from tests.server.running_server import RunningServer

BUCKET = "files-of-tests"
ONE, TWO = b"one", b"two" * 1_000
SPACE = blobs("default")
ONE_DIGEST = sha256(ONE)
LATER = 10**12


@pytest.fixture(scope="session")
def s3_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real S3 server, as a program of its own, with a bucket."""
    log = tmp_path_factory.mktemp("s3") / "log"
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with log.open("wb") as said:
        program = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=said, stderr=said
        )
    try:
        until(lambda: _answers(address) or program.poll() is not None, "the S3 server answers")
        assert program.poll() is None, log.read_text()
        yield address
    finally:
        program.kill()
        program.wait()


def _answers(address: str) -> bool:
    """Make the bucket, if the server is there."""
    asked = urllib.request.Request(f"{address}/{BUCKET}", method="PUT")  # noqa: S310 - our own address
    try:
        urllib.request.urlopen(asked, timeout=DEADLINE_SECONDS).close()  # noqa: S310
    except OSError:
        return False
    return True


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileStore:
    """An empty store of each kind."""
    if request.param == "local":
        return open_store(str(tmp_path / "files"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", request.getfixturevalue("s3_address"))
    for name, value in (("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test"), ("REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    return open_store(f"s3://{BUCKET}/{os.urandom(4).hex()}/deep")


def put(store: FileStore, *bodies: bytes, space: Space = SPACE) -> list[str]:
    store.put(space, {sha256(body): body for body in bodies})
    return [sha256(body) for body in bodies]


def put_tree(store: FileStore, **files: bytes) -> str:
    """Store a tree with its chunks."""
    put(store, *files.values())
    tree = make_tree(TreeFile(path, len(body), (sha256(body),)) for path, body in files.items())
    return put(store, tree_text(tree), space=trees("default"))[0]


def whole(store: FileStore) -> set[str]:
    return {*store.digests(SPACE), *store.digests(trees("default"))}


def test_what_is_put_is_there_for_its_pool_alone(store: FileStore) -> None:
    assert store.pools() == []
    one, two = put(store, ONE, TWO)
    assert store.keep(SPACE, [one, "0" * 64, two]) == {one: len(ONE), two: len(TWO)}
    assert (store.get(SPACE, one), store.get(SPACE, "0" * 64)) == (ONE, None)
    assert sorted(store.digests(SPACE)) == sorted([one, two])
    for other in (trees("default"), blobs("other")):
        assert (store.keep(other, [one]), store.get(other, one), list(store.digests(other))) == ({}, None, [])
    put(store, ONE, TWO)
    assert store.pools() == [pool_key("default")]
    assert store.get(SPACE, two) == TWO


def test_many_bodies_are_put_at_once(store: FileStore) -> None:
    bodies = [str(number).encode() for number in range(300)]
    digests = put(store, *bodies)
    assert len(store.keep(SPACE, digests)) == 300
    assert sorted(store.digests(SPACE)) == sorted(digests)


def test_only_what_was_not_used_for_long_is_dropped(store: FileStore) -> None:
    one, two = put(store, ONE, TWO)
    assert list(store.digests(SPACE, unused_since=1.0)) == []
    assert store.drop(SPACE, [one, two, "0" * 64], unused_since=1.0) == 0
    assert sorted(store.digests(SPACE, unused_since=LATER)) == sorted([one, two])
    assert store.drop(SPACE, [one, "0" * 64], unused_since=LATER) == len(ONE)
    assert (store.get(SPACE, one), store.get(SPACE, two)) == (None, TWO)
    store.clean(LATER)
    assert store.get(SPACE, two) == TWO


def test_a_tree_is_kept_while_something_refers_to_it_and_its_chunks_with_it(store: FileStore) -> None:
    used, unused = put_tree(store, a=b"used", b=b"both"), put_tree(store, a=b"unused", b=b"both")
    orphan = put(store, b"orphan")[0]

    def collect() -> tuple[int, int, int]:
        removed = collect_garbage(
            store, lambda digests: {used} & set(digests), unused_seconds=-60, settle_seconds=0, bits=1 << 16
        )
        return removed.trees, removed.chunks, removed.bytes

    before = whole(store)
    removed = collect_garbage(store, lambda _: set(), unused_seconds=3_600, bits=1 << 16)
    assert (removed.trees, removed.chunks, whole(store)) == (0, 0, before), "all of it was used just now"
    assert collect()[:2] == (1, 1)
    # The chunks of a tree that was removed stay for one more pass.
    assert whole(store) == before - {unused, orphan}
    assert collect() == (0, 1, len(b"unused"))
    assert whole(store) == {used, sha256(b"used"), sha256(b"both")}
    assert collect() == (0, 0, 0)


def test_a_reference_that_is_copied_while_the_first_is_deleted_keeps_its_tree(store: FileStore) -> None:
    copied, gone = put_tree(store, a=b"copied"), put_tree(store, a=b"gone")
    answers = iter([set(), {copied}])

    removed = collect_garbage(store, lambda _: next(answers), unused_seconds=-60, settle_seconds=0, bits=1 << 16)
    assert (removed.trees, store.get(trees("default"), gone)) == (1, None)
    assert store.get(trees("default"), copied) is not None


def test_a_tree_that_cannot_be_read_stops_the_collector_and_loses_nothing(tmp_path: Path) -> None:
    store = LocalFiles(tmp_path)
    tree = put_tree(store, a=b"a")
    (file,) = tmp_path.rglob(tree)
    file.write_bytes(b"damaged")
    assert collect_garbage(store, lambda _: set(), unused_seconds=-60, settle_seconds=0).chunks == 0
    assert store.get(SPACE, sha256(b"a")) == b"a"


def test_what_is_used_while_it_is_dropped_stays(tmp_path: Path) -> None:
    """A client that is told that a chunk is there finds it, whatever the collector does in the same moment."""
    store = LocalFiles(tmp_path)
    (one,) = put(store, ONE)
    (file,) = tmp_path.rglob(one)
    dropping = True

    def drop() -> None:
        while dropping:
            store.drop(SPACE, [one], unused_since=time.time() - 3_600)

    collector = Thread(target=drop)
    collector.start()
    try:
        for number in range(500):
            with suppress(FileNotFoundError):
                os.utime(file, (1, 1))
            if one in store.keep(SPACE, [one]):
                # From now on it stays, although the collector has seen that it is old.
                until(lambda: store.get(SPACE, one) == ONE, f"the chunk stays, round {number}")
            put(store, ONE)
    finally:
        dropping = False
        collector.join()
    assert store.get(SPACE, one) == ONE


def test_what_a_killed_collector_had_in_hand_is_there_for_everybody(tmp_path: Path) -> None:
    for act in ("keep", "get", "put", "digests", "drop"):
        store = LocalFiles(tmp_path / act)
        tree = put_tree(store, a=b"a")
        for file in [path for path in (tmp_path / act).rglob("*") if len(path.name) == 64]:
            file.rename(f"{file}{local._ASIDE}")  # it was killed here
        one = sha256(b"a")
        if act == "keep":
            assert store.keep(SPACE, [one]) == {one: 1}
        elif act == "get":
            assert store.get(SPACE, one) == b"a"
        elif act == "put":
            put(store, b"a")
        elif act == "digests":
            assert whole(store) == {one, tree}
        else:
            assert store.drop(SPACE, [one], unused_since=1.0) == 0
        assert (store.get(SPACE, one), store.get(trees("default"), tree) is None) == (b"a", False), act
        put_back = collect_garbage(store, lambda _: set(), unused_seconds=3_600, bits=1 << 16)
        assert (put_back.trees, put_back.chunks, whole(store)) == (0, 0, {one, tree}), act


COLLECTOR = """
import sys, time
from pathlib import Path
from taskyard.files.local import LocalFiles
from taskyard.files.store import blobs
store = LocalFiles(Path(sys.argv[1]))
for digest in list(store.digests(blobs("default"))):
    store.drop(blobs("default"), [digest], time.time() - 3_600)
    print(digest, flush=True)
"""


def test_a_killed_collector_has_taken_nothing_away_that_was_promised(tmp_path: Path) -> None:
    """Clients ask what is there while a collector goes through old files, and it is killed in the middle."""
    for kill_after in (1, 20, 60, 100):
        root = tmp_path / str(kill_after)
        store = LocalFiles(root)
        digests = put(store, *(str(number).encode() for number in range(200)))
        for file in [path for path in root.rglob("*") if len(path.name) == 64]:
            os.utime(file, (1, 1))
        with subprocess.Popen([sys.executable, "-c", COLLECTOR, str(root)], stdout=subprocess.PIPE, text=True) as one:
            assert one.stdout is not None
            for _ in range(kill_after):
                one.stdout.readline()
            promised = store.keep(SPACE, sorted(digests))
            one.kill()
        assert all(store.get(SPACE, digest) is not None for digest in promised), kill_after
        collect_garbage(store, lambda _: set(), unused_seconds=3_600, bits=1 << 16)
        assert set(promised) <= set(store.digests(SPACE)), kill_after


def test_two_collectors_and_a_client_lose_nothing_that_was_promised(tmp_path: Path) -> None:
    """Two servers of one store make their passes at the same time."""
    store = LocalFiles(tmp_path)
    digests = put(store, *(str(number).encode() for number in range(50)))
    dropping = True

    def drop() -> None:
        while dropping:
            store.drop(SPACE, digests, unused_since=time.time() - 3_600)

    collectors = [Thread(target=drop) for _ in range(2)]
    for one in collectors:
        one.start()
    try:
        for number in range(100):
            for digest in digests:
                with suppress(FileNotFoundError):
                    os.utime(store._path(SPACE, digest), (1, 1))
            promised = store.keep(SPACE, digests)
            lost = [digest for digest in promised if store.get(SPACE, digest) is None]
            assert lost == [], f"round {number}"
            put(store, *(str(number).encode() for number in range(50)))
    finally:
        dropping = False
        for one in collectors:
            one.join()


def test_the_last_of_the_disk_is_left_to_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalFiles(tmp_path)
    put(store, ONE)
    monkeypatch.setattr(local, "FREE_BYTES_MIN", 1 << 62)
    put(store, ONE)  # it is there already
    with pytest.raises(StoreBroken, match="the disk of the files is full"):
        put(store, TWO)
    assert store.get(SPACE, ONE_DIGEST) == ONE
    assert sorted(path.name for path in (tmp_path / "incoming").iterdir()) == []


def test_an_old_object_of_a_bucket_is_renewed_before_it_is_promised(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 cannot remove an object only if it is old, so one that is used gets another name."""
    store = _bucket(request, monkeypatch)
    (one,) = put(store, ONE)
    (first,) = store._generations(SPACE, one)
    monkeypatch.setattr(s3_store, "UNUSED_SECONDS", -3_600.0)  # everything is old now
    assert store.keep(SPACE, [one]) == {one: len(ONE)}
    monkeypatch.undo()
    both = store._generations(SPACE, one)
    assert len(both) == 2
    # What the collector had seen before goes by its own name; the body stays.
    store._remove([first])
    assert store.get(SPACE, one) == ONE
    put(store, ONE)
    assert len(store._generations(SPACE, one)) == 1


def test_a_body_that_gets_another_name_while_it_is_read_is_found(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _bucket(request, monkeypatch)
    (one,) = put(store, ONE)
    (first,) = store._generations(SPACE, one)
    listed = store._generations

    def renewed(space: Space, digest: str) -> list[s3_store._Generation]:
        """Let another server renew the body and remove the old name after it was listed."""
        found = listed(space, digest)
        if found == [first]:
            obstore.copy(store._store, first.name, store._new_name(space, digest))
            store._remove([first])
        return found

    monkeypatch.setattr(store, "_generations", renewed)
    assert store.get(SPACE, one) == ONE
    store._remove(listed(SPACE, one))
    assert store.get(SPACE, one) is None


def _bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> s3_store.S3Files:
    monkeypatch.setenv("AWS_ENDPOINT_URL", request.getfixturevalue("s3_address"))
    for name, value in (("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test"), ("REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    return s3_store.S3Files(f"s3://{BUCKET}/{os.urandom(4).hex()}")


def test_a_bucket_that_cannot_be_used_is_reported(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    _bucket(request, monkeypatch)
    store = s3_store.S3Files("s3://no-such-bucket/x")
    with pytest.raises(StoreBroken, match="the bucket of the files cannot be used"):
        put(store, ONE)
    with pytest.raises(StoreBroken, match="names no bucket"):
        s3_store.S3Files("s3://")


def test_a_server_keeps_files_in_a_bucket(
    sqlite_url: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    _bucket(request, monkeypatch)
    (tmp_path / "source" / "sub").mkdir(parents=True)
    (tmp_path / "source" / "large").write_bytes(os.urandom(CHUNK_BYTES + 5))
    (tmp_path / "source" / "sub" / "small").write_text("small")
    place = f"s3://{BUCKET}/{os.urandom(4).hex()}"
    with RunningServer(sqlite_url, Settings(files=place)) as server, Client(server.http.url, server.admin) as client:
        found = tree_of(str(tmp_path / "source"))
        assert client.put_tree(found).moved_chunks == 3
        assert client.put_tree(found).moved_chunks == 0
        client.get_tree(found.digest, str(tmp_path / "back"))
    assert tree_of(str(tmp_path / "back")).digest == found.digest


def test_a_filter_holds_what_was_added_and_little_else() -> None:
    found = DigestFilter(1 << 16)
    added = [sha256(str(number).encode()) for number in range(2_000)]
    for digest in added:
        found.add(digest)
    assert all(digest in found for digest in added)
    wrong = sum(sha256(str(number).encode()) in found for number in range(10_000, 20_000))
    assert wrong < 200


WRITER = """
import sys
from pathlib import Path
from taskyard.files.digests import sha256
from taskyard.files.local import LocalFiles
from taskyard.files.store import blobs
store = LocalFiles(Path(sys.argv[1]))
for number in range(10**9):
    body = number.to_bytes(8, "big") * 200_000
    store.put(blobs("default"), {sha256(body): body})
    print(sha256(body), flush=True)
"""


def test_a_killed_writer_loses_nothing_that_it_has_stored_and_leaves_nothing_half(tmp_path: Path) -> None:
    root = tmp_path / "files"
    acknowledged: list[str] = []
    for kill_after in (1, 3, 6):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(root)], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            acknowledged += [writer.stdout.readline().strip() for _ in range(kill_after)]
            writer.send_signal(signal.SIGKILL)
            acknowledged += [line.strip() for line in writer.stdout if len(line) == 65]
    store = LocalFiles(root)
    assert len(acknowledged) >= 10
    for digest in store.digests(SPACE):
        assert store.get(SPACE, digest) is not None, "what has a name is whole"
    assert set(acknowledged) <= set(store.digests(SPACE))
    store.clean(LATER)
    assert list((root / "incoming").iterdir()) == []


def test_a_server_refuses_a_place_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreBroken, match="cannot keep files in"):
        LocalFiles(tmp_path / "file" / "files")
