"""Files over HTTP: only what is missing is stored, all is verified, pools are apart, nothing is served as a page."""

import hashlib
import os
from pathlib import Path
from threading import Event, Semaphore, Thread

import pytest

from taskyard.core.states import Signal
from taskyard.files import blob_frames
from taskyard.files.digests import CHUNK_BYTES, Tree, TreeFile, TreeLink, make_tree, sha256, tree_text
from taskyard.files.local import LocalFiles
from taskyard.files.store import Space, blobs
from taskyard.sdk import Client
from taskyard.sdk.errors import Refused, Unreachable
from taskyard.sdk.files import TransferFailed, upload, verified
from taskyard.sdk.http import HttpResponse
from taskyard.sdk.local_inputs import BadInputs, tree_of
from taskyard.server import file_gc, file_store
from taskyard.server.file_gc import collect_once
from taskyard.server.settings import THREADS_MAX, Settings
from tests.server.running_server import Answer, Made, RunningServer, graph, task

BLOBS = "/api/v1/pools/default/blobs"
TREES = "/api/v1/pools/default/trees"


def store(server: RunningServer, *bodies: bytes, pool: str = "default", token: str | None = "") -> list[str]:
    answer = server.ask("POST", f"/api/v1/pools/{pool}/blobs", blob_frames.join(bodies), token=token)
    assert answer.status == 200, answer.body
    return list(answer.json["digests"])


def offer(server: RunningServer, tree: Tree, pool: str = "default", token: str | None = "") -> Answer:
    return server.ask("POST", f"/api/v1/pools/{pool}/trees", tree_text(tree), token=token)


def stored(server: RunningServer, files: dict[str, bytes], links: dict[str, str] | None = None) -> str:
    """Store a tree for the default pool."""
    made = [TreeFile(path, len(body), (sha256(body),) if body else ()) for path, body in files.items()]
    store(server, *files.values())
    answer = offer(server, make_tree(made, (TreeLink(*one) for one in (links or {}).items())))
    assert answer.json["missing"] == []
    return str(answer.json["digest"])


def left(server: RunningServer, files: dict[str, bytes], *artifacts: dict[str, str]) -> Made:
    """Let a task leave these files, and end well."""
    server.hello()
    made = server.submit(graph(a=task()))
    (lease,) = server.claim()
    digest = stored(server, files)
    said = {"pool": "default", "tree": digest, "artifacts": [{"tree": digest, **one} for one in artifacts]}
    answer = server.ask("PUT", f"/api/v1/tasks/{made.tasks['a']}/files", said, token=server.run_token(lease))
    assert answer.status == 204, answer.body
    server.end(lease)
    return made


def test_a_tree_is_stored_once_its_chunks_are(server: RunningServer) -> None:
    tree = make_tree([TreeFile("a", 1, (sha256(b"x"),)), TreeFile("b", 3, (sha256(b"yes"),))])
    digest = hashlib.sha256(tree_text(tree)).hexdigest()
    first = offer(server, tree)
    shown = {"digest": digest, "files": 2, "bytes": 4}
    assert (first.status, first.json) == (200, shown | {"missing": [sha256(b"x"), sha256(b"yes")]})
    assert server.ask("GET", f"{TREES}/{digest}").status == 404
    assert store(server, b"x") == [sha256(b"x")]
    assert offer(server, tree).json["missing"] == [sha256(b"yes")]
    store(server, b"yes")
    assert offer(server, tree).json == shown | {"missing": []}
    assert server.ask("GET", f"{TREES}/{digest}").body == tree_text(tree)


def test_a_tree_that_lies_about_its_chunks_is_refused(server: RunningServer) -> None:
    store(server, b"abc")
    answer = offer(server, make_tree([TreeFile("a", 5, (sha256(b"abc"),))]))
    assert (answer.status, answer.json["faults"][0]["message"].endswith("has 3 bytes, not 5")) == (400, True)
    hostile = b'{"files":[{"path":"../x","size":0}]}'
    answer = server.ask("POST", TREES, hostile)
    assert (answer.status, answer.json["faults"]) == (
        400,
        [{"message": "file '../x' leads out of its folder", "path": ""}],
    )


def test_chunks_are_read_back_in_order_and_a_damaged_one_is_missing(server: RunningServer, tmp_path: Path) -> None:
    one, two = store(server, b"one", b"two")
    asked = [two, "0" * 64, one, two]
    assert list(blob_frames.split(server.ask("POST", f"{BLOBS}/read", asked).body)) == [b"two", None, b"one", b"two"]
    (file,) = [path for path in Path(server.http.app.context.files.location).rglob(one) if path.is_file()]
    file.write_bytes(b"One")
    assert list(blob_frames.split(server.ask("POST", f"{BLOBS}/read", [one]).body)) == [None]
    store(server, b"one")
    assert file.read_bytes() == b"one", "it is stored anew"


@pytest.mark.parametrize("body", [b"\0", b"\0\0\0\5abc", b"\0\0\0\0" * 1_001])
def test_a_body_that_is_cut_off_stores_nothing(server: RunningServer, body: bytes) -> None:
    assert server.ask("POST", BLOBS, body).status == 400
    assert not [path for path in Path(server.http.app.context.files.location).rglob("*") if path.is_file()]


def test_a_chunk_larger_than_any_is_refused(server: RunningServer) -> None:
    assert server.ask("POST", BLOBS, blob_frames.join([bytes(CHUNK_BYTES + 5_000)])).status == 413


def test_pools_are_apart_even_for_content_that_both_have(server: RunningServer) -> None:
    mine = server.token("pool:a:submit", "pool:a:read")
    digest = sha256(b"secret")
    tree = make_tree([TreeFile("key", 6, (digest,))])
    store(server, b"secret", pool="b")
    assert offer(server, tree, "b").json["missing"] == []
    # A caller who knows the digest of a secret neither learns that it is there, nor gets it.
    assert offer(server, tree, "a", mine).json["missing"] == [digest]
    assert list(blob_frames.split(server.ask("POST", "/api/v1/pools/a/blobs/read", [digest], token=mine).body)) == [
        None
    ]
    assert server.ask("POST", "/api/v1/pools/b/blobs/read", [digest], token=mine).status == 403
    wanted = graph(t=task(payload={"command": ["x"], "inputs": [sha256(tree_text(tree))]}, dimensions={"pool": "a"}))
    answer = server.ask("POST", "/api/v1/graphs", wanted, token=mine)
    assert (answer.status, answer.paths) == (400, ["tasks.t.task.payload.inputs"])


def test_a_graph_is_refused_until_its_trees_are_stored(either_server: RunningServer) -> None:
    server = either_server
    tree = make_tree([TreeFile("a", 0)])
    digest = sha256(tree_text(tree))
    document = graph(t=task(payload={"command": ["x"], "inputs": [digest]}))
    if not server.http.app.context.files.location:
        assert server.ask("POST", "/api/v1/graphs", document).json["code"] == "no_files"
        return
    assert server.ask("POST", "/api/v1/graphs/files", document).json["items"] == [
        {"tree": digest, "pool": "default", "stored": False}
    ]
    answer = server.ask("POST", "/api/v1/graphs", document)
    assert answer.json["faults"] == [
        {
            "message": f"tree {digest} is not stored in pool default; `taskyard put` stores it",
            "path": "tasks.t.task.payload.inputs",
        }
    ]
    made = server.submit(graph(t=task()))
    extended = server.ask("POST", f"/api/v1/graphs/{made.id}/tasks", {"tasks": {"u": document["tasks"]["t"]}})  # type: ignore[index]
    assert extended.paths == ["tasks.u.task.payload.inputs"]
    offer(server, tree)
    assert server.ask("POST", "/api/v1/graphs/files", document).json["items"][0]["stored"] is True
    stored_graph = server.submit(document)
    assert server.get(f"/api/v1/tasks/{stored_graph.tasks['t']}")["input_trees"] == [digest]


def test_a_file_is_served_by_range_and_never_as_a_page(server: RunningServer) -> None:
    page = b"<script>alert(1)</script>"
    made = left(
        server,
        {'out/évil "x".html': page, "empty": b""},
        {"name": "page", "path": 'out/évil "x".html', "content_type": "text/html"},
    )
    path = f"/api/v1/tasks/{made.tasks['a']}"
    whole = server.ask("GET", f"{path}/files/out/%C3%A9vil%20%22x%22.html")
    assert (whole.status, whole.body, whole.headers["content-type"]) == (200, page, "application/octet-stream")
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert whole.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert whole.headers["content-disposition"] == "attachment; filename*=UTF-8''%C3%A9vil%20%22x%22.html"
    assert whole.headers["etag"] == f'"{sha256(page)}"'
    part = server.ask("GET", f"{path}/artifacts/page", headers={"Range": "bytes=1-6"})
    assert (part.status, part.body, part.headers["content-range"]) == (206, b"script", f"bytes 1-6/{len(page)}")
    assert part.headers["content-type"].startswith("text/html")
    assert part.headers["content-disposition"].startswith("attachment")
    changed = server.ask("GET", f"{path}/artifacts/page", headers={"Range": "bytes=1-6", "If-Range": '"other"'})
    assert (changed.status, changed.body) == (200, page)
    beyond = server.ask("GET", f"{path}/artifacts/page", headers={"Range": "bytes=100-"})
    assert (beyond.status, beyond.headers["content-range"]) == (416, f"bytes */{len(page)}")
    assert server.ask("GET", f"{path}/files/empty").body == b""
    for missing in ("files/out", "files/none", "files/../x", "artifacts/none", "files/empty?attempt=7"):
        assert server.ask("GET", f"{path}/{missing}").status == 404
    assert server.ask("HEAD", f"{path}/files/empty").headers["content-length"] == "0"


def test_a_range_over_chunks_is_joined(server: RunningServer) -> None:
    server.hello()
    made = server.submit(graph(a=task()))
    (lease,) = server.claim()
    body = os.urandom(CHUNK_BYTES) + os.urandom(1_000)
    chunks = (*store(server, body[:CHUNK_BYTES]), *store(server, body[CHUNK_BYTES:]))
    digest = offer(server, make_tree([TreeFile("large", len(body), chunks)])).json["digest"]
    path = f"/api/v1/tasks/{made.tasks['a']}/files"
    said = {"pool": "default", "tree": digest}
    assert server.ask("PUT", path, said, token=server.run_token(lease)).status == 204
    assert server.ask("GET", f"{path}/large").body == body
    span = {"Range": f"bytes={CHUNK_BYTES - 10}-{CHUNK_BYTES + 9}"}
    assert server.ask("GET", f"{path}/large", headers=span).body == body[CHUNK_BYTES - 10 : CHUNK_BYTES + 10]
    assert server.ask("GET", f"{path}/large", headers={"Range": "bytes=-5"}).body == body[-5:]


def test_what_an_attempt_left_is_listed_and_shown_with_it(either_server: RunningServer, tmp_path: Path) -> None:
    server = either_server
    server.http.app.context.files.location = server.http.app.context.files.location or str(tmp_path)
    made = left(server, {"b": b"bb", "a": b"a"}, {"name": "n", "path": "b"})
    task_id = made.tasks["a"]
    ref = {"digest": stored(server, {"a": b"a", "b": b"bb"}), "files": 2, "bytes": 3}
    assert server.get(f"/api/v1/tasks/{task_id}")["files"] == ref
    assert server.get(f"/api/v1/tasks/{task_id}/attempts")["items"][0]["files"] == ref
    first = server.get(f"/api/v1/tasks/{task_id}/files?limit=1")
    assert (first["attempt"], first["tree"], [one["path"] for one in first["items"]]) == (1, ref, ["a"])
    second = server.get(f"/api/v1/tasks/{task_id}/files?limit=1&cursor={first['next']}")
    assert ([one["path"] for one in second["items"]], second["next"]) == (["b"], None)
    kind = "application/octet-stream"
    assert server.get(f"/api/v1/tasks/{task_id}/artifacts")["items"] == [
        {"name": "n", "path": "b", "size": 2, "content_type": kind}
    ]


def test_pages_of_files_links_and_folders_are_one_order(server: RunningServer) -> None:
    server.hello()
    made = server.submit(graph(a=task()))
    (lease,) = server.claim()
    tree = make_tree(
        [TreeFile(path, 0) for path in ("b", "d/x", "z")], [TreeLink("c", "b"), TreeLink("y", "z")], ["a", "e"]
    )
    digest = offer(server, tree).json["digest"]
    path = f"/api/v1/tasks/{made.tasks['a']}/files"
    said = {"pool": "default", "tree": digest}
    assert server.ask("PUT", path, said, token=server.run_token(lease)).status == 204
    for size in (1, 2, 3, 7, 100):
        shown: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page = server.get(f"{path}?limit={size}" + (f"&cursor={cursor}" if cursor else ""))
            shown += [one["path"] for one in page["items"]]
            cursor = page["next"]
        assert shown == ["a", "b", "c", "d/x", "e", "y", "z"], size
    assert server.ask("GET", f"{path}/d/x").status == 200
    assert [server.ask("GET", f"{path}/{one}").status for one in ("d", "c", "a", "zz", "d/x/")] == [404] * 5


class StuckFiles(LocalFiles):
    """A store whose disk does not answer."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.answers, self.asked = Event(), Semaphore(0)

    def get(self, space: Space, digest: str) -> bytes | None:
        self.asked.release()
        assert self.answers.wait(60)
        return super().get(space, digest)


def test_a_store_that_does_not_answer_holds_up_no_other_request(server: RunningServer, tmp_path: Path) -> None:
    stuck = StuckFiles(tmp_path / "stuck")
    server.http.app.context.files._store = stuck
    asking = [Thread(target=server.ask, args=("GET", f"{TREES}/{number:064}")) for number in range(2 * THREADS_MAX)]
    for one in asking:
        one.start()
    try:
        for _ in range(file_store.THREADS_MAX):
            assert stuck.asked.acquire(timeout=60)
        assert server.ask("GET", "/api/v1/graphs").status == 200
        server.submit(graph(a=task()))
    finally:
        stuck.answers.set()
        for one in asking:
            one.join()


def test_parsed_trees_are_kept_while_they_are_few_and_small(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = server.http.app.context.files
    digests = [stored(server, {f"{number}-{one}": b"" for one in range(3)}) for number in range(20)]
    for digest in digests:
        kept.tree("default", digest)
    assert len(kept._trees) == file_store.TREES_CACHED
    monkeypatch.setattr(file_store, "ENTRIES_CACHED", 6)
    kept.tree("default", digests[0])
    assert [digest for _, digest in kept._trees] == [digests[-1], digests[0]]
    monkeypatch.setattr(file_store, "ENTRIES_CACHED", 2)
    assert len(kept.tree("default", digests[1]).files) == 3, "one that is too large to be kept is read each time"
    assert kept._trees == {}


def test_only_the_running_attempt_says_what_it_leaves_and_only_what_is_stored(server: RunningServer) -> None:
    server.hello()
    made = server.submit(graph(a=task()))
    (lease,) = server.claim()
    path, run = f"/api/v1/tasks/{made.tasks['a']}/files", server.run_token(lease)
    digest = stored(server, {"a": b"a"})
    good = {"pool": "default", "tree": digest}
    assert server.ask("PUT", path, good).status == 403
    assert server.ask("PUT", path, {"pool": "other", "tree": digest}, token=run).status == 403
    assert server.ask("PUT", path, {"pool": "default", "tree": "0" * 64}, token=run).status == 409
    named = {"name": "n", "tree": digest, "path": "none"}
    bad = server.ask("PUT", path, good | {"artifacts": [named]}, token=run)
    assert (bad.status, bad.paths) == (400, ["artifacts[0].path"])
    faulty = [{"name": "", "tree": "x", "path": "../x", "content_type": "a\nb"}, 7]
    bad = server.ask("PUT", path, good | {"artifacts": faulty}, token=run)
    wanted = [
        "artifacts[0].name",
        "artifacts[0].tree",
        "artifacts[0].path",
        "artifacts[0].content_type",
        "artifacts[1]",
    ]
    assert bad.paths == wanted
    assert server.ask("PUT", path, good, token=run).status == server.ask("PUT", path, good, token=run).status == 204
    server.end(lease)
    assert server.ask("PUT", path, good, token=run).status == 401


def test_dependents_take_the_outputs_of_what_ended_well(server: RunningServer) -> None:
    server.hello()
    took = {"command": ["x"], "inputs": [{"from": "a", "path": "dist/", "to": "in/"}, {"from": "b"}, {"from": "c"}]}
    made = server.submit(graph(a=task(), b=task(), c=task(), d=task("a", "b", "c", payload=took)))
    digest = ""
    for lease in server.claim():
        if lease.task == made.key("a"):
            digest = stored(server, {"dist/x": b"x"})
            said = {"pool": "default", "tree": digest}
            server.ask("PUT", f"/api/v1/tasks/{made.tasks['a']}/files", said, token=server.run_token(lease))
        server.end(lease)
    found = server.get(f"/api/v1/tasks/{made.tasks['d']}/inputs/files")["items"]
    assert found == [
        {"pool": "default", "tree": digest, "path": "dist/", "to": "in/", "label": "a"},
        {"pool": "", "tree": "", "path": None, "to": None, "label": "b"},
        {"pool": "", "tree": "", "path": None, "to": None, "label": "c"},
    ]


def test_a_task_that_is_reused_by_a_rerun_brings_its_files_along(server: RunningServer) -> None:
    server.hello()
    made = server.submit(graph(a=task(), b=task("a", payload={"command": ["x"], "inputs": [{"from": "a"}]})))
    (lease,) = server.claim()
    digest = stored(server, {"x": b"x"})
    named = {"pool": "default", "tree": digest, "artifacts": [{"name": "n", "tree": digest, "path": "x"}]}
    server.ask("PUT", f"/api/v1/tasks/{made.tasks['a']}/files", named, token=server.run_token(lease))
    server.end(lease)
    (lease,) = server.claim()
    server.end(lease, Signal.FAIL)
    again = server.ask("POST", f"/api/v1/graphs/{made.id}/rerun", {"from": ["b"]}).json
    names = server.get(f"/api/v1/graphs/{again['subject']}")["nameMapping"]
    assert server.ask("GET", f"/api/v1/tasks/{names['a']}/files/x").body == b"x"
    assert server.ask("GET", f"/api/v1/tasks/{names['a']}/artifacts/n").body == b"x"
    assert server.get(f"/api/v1/tasks/{names['b']}/inputs/files")["items"][0]["tree"] == digest


def test_a_rerun_is_refused_if_what_it_takes_is_gone_and_keeps_it_if_not(server: RunningServer) -> None:
    """Only the old graph may refer to it, and that may be deleted before the new one is stored."""
    server.hello()
    digest = stored(server, {"x": b"x"})
    made = server.submit(graph(a=task(payload={"command": ["x"], "inputs": [digest]}), b=task("a")))
    for _ in range(2):
        (lease,) = server.claim()
        server.end(lease)
    (file,) = Path(server.http.app.context.files.location).rglob(digest)
    os.utime(file, (1, 1))
    rerun = f"/api/v1/graphs/{made.id}/rerun"
    assert server.ask("POST", rerun, {"from": ["b"]}).status == 201
    assert file.stat().st_mtime == 1, "the task that takes it is reused"
    assert server.ask("POST", rerun, {"from": ["a"]}).status == 201
    assert file.stat().st_mtime > 1, "it is kept from now on"
    file.unlink()
    refused = server.ask("POST", rerun, {"from": ["a"]})
    assert (refused.status, refused.paths) == (400, ["tasks.a.task.payload.inputs"])


def test_a_client_sends_only_what_is_missing_and_finds_it_again(server: RunningServer, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "large").write_bytes(os.urandom(2 * CHUNK_BYTES + 7))
    for number in range(50):
        (source / "sub" / f"{number}").write_text(str(number % 40))
    with Client(server.http.url, server.admin) as client:
        done = client.put_tree(tree_of(str(source)))
        assert (done.moved_chunks, done.tree.files) == (3 + 40, 51)
        assert client.put_tree(tree_of(str(source))).moved_bytes == 0
        (source / "sub" / "0").write_text("new")
        assert client.put_tree(tree_of(str(source))).moved_bytes == 3
        client.get_tree(done.tree.digest, str(tmp_path / "back"))
        (source / "sub" / "0").write_text("0")
        assert tree_of(str(tmp_path / "back")).digest == tree_of(str(source)).digest == done.tree.digest


def test_an_upload_that_was_cut_off_goes_on_where_it_was(server: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "large").write_bytes(os.urandom(6 * CHUNK_BYTES))
    found = tree_of(str(tmp_path / "files"))
    with Client(server.http.url, server.admin) as client:
        asked: list[int] = []

        def stop() -> bool:
            asked.append(1)
            return len(asked) > 3

        with pytest.raises(InterruptedError):
            upload(client._session, "default", found.tree, found.root, stop)
        rest = client.put_tree(found)
        assert 0 < rest.moved_chunks < 6


def test_a_client_refuses_what_a_server_gives_instead(server: RunningServer, tmp_path: Path) -> None:
    digest = stored(server, {"a": b"good"})
    files = LocalFiles(Path(server.http.app.context.files.location))
    (file,) = Path(server.http.app.context.files.location).rglob(sha256(b"good"))
    file.write_bytes(b"evil")
    assert files.get(blobs("default"), sha256(b"good")) is None
    with Client(server.http.url, server.admin) as client:
        with pytest.raises(TransferFailed, match="missing or damaged"):
            client.get_tree(digest, str(tmp_path / "out"))
        with pytest.raises(Refused):
            client.get_tree("0" * 64, str(tmp_path / "out"))
    assert not list((tmp_path / "out").iterdir())


def test_a_file_that_is_damaged_or_cut_off_on_its_way_is_noticed_at_the_end(server: RunningServer) -> None:
    server.hello()
    made = server.submit(graph(a=task()))
    (lease,) = server.claim()
    parts = (os.urandom(CHUNK_BYTES), os.urandom(1_000))
    files = [TreeFile("large", CHUNK_BYTES + 1_000, tuple(store(server, *parts))), TreeFile("empty", 0)]
    digest = offer(server, make_tree(files)).json["digest"]
    name = {"name": "n", "tree": digest, "path": "large"}
    said = {"pool": "default", "tree": digest, "artifacts": [name]}
    path = f"/api/v1/tasks/{made.tasks['a']}/files"
    assert server.ask("PUT", path, said, token=server.run_token(lease)).status == 204
    with Client(server.http.url, server.admin) as client:
        for read in (client.read_file(made.tasks["a"], "large"), client.read_artifact(made.tasks["a"], "n")):
            assert b"".join(read) == b"".join(parts)
        assert b"".join(client.read_file(made.tasks["a"], "empty")) == b""
        (chunk,) = Path(server.http.app.context.files.location).rglob(sha256(parts[1]))
        chunk.write_bytes(b"x" * 1_000)  # the answer has begun when the server finds it out
        with pytest.raises((TransferFailed, Unreachable)):
            list(client.read_file(made.tasks["a"], "large"))
    answer = HttpResponse(200, {"etag": f'"{sha256(b"good")}"'}, b"")
    assert b"".join(verified(iter([answer, b"go", b"od"]), "f")) == b"good"
    for pieces in ([b"go"], [b"g", b"00d"], []):
        with pytest.raises(TransferFailed, match="'f' is damaged, or was cut off"):
            list(verified(iter([answer, *pieces]), "f"))


def test_a_document_with_files_of_this_machine_is_stored_with_them(server: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a").write_text("a")
    (tmp_path / "one.txt").write_text("one")
    local = [{"local": "src", "to": "code/"}, {"local": "one.txt"}]
    pools = {"pool": ["lab"]}
    document = graph(
        a=task(payload={"command": ["x"], "inputs": local}),
        b=task(payload={"command": ["x"], "inputs": [{"local": "src"}]}, dimensions=pools),
    )
    with Client(server.http.url, server.admin) as client:
        resolved = client.store_inputs(document, here=str(tmp_path))
        assert all(one.stored for one in client.needed_trees(resolved))
        assert {one.pool for one in client.needed_trees(resolved)} == {"default", "lab"}
        made = client.submit_with_files(document, here=str(tmp_path))
        assert client.task(made.nameMapping["a"]).input_trees == sorted(
            [tree_of(str(tmp_path / "src")).digest, tree_of(str(tmp_path / "one.txt")).digest]
        )
        bad = graph(a=task(payload={"command": ["x"], "inputs": [{"local": "none"}, {"local": "src"}]}))
        with pytest.raises(BadInputs) as refused:
            client.submit_with_files(bad, here=str(tmp_path))
    assert [path for _, path in refused.value.faults] == ["tasks.a.task.payload.inputs[0].local"]


def test_a_server_without_a_place_for_files_says_so(postgres_url: str) -> None:
    with RunningServer(postgres_url) as server:
        answer = server.ask("POST", TREES, b"{}")
        assert (answer.status, answer.json["code"]) == (404, "no_files")


def test_a_place_that_cannot_be_written_is_reported_and_is_no_bug(sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with RunningServer(sqlite_url, Settings(files=str(tmp_path / "file" / "files"))) as server:
        answer = server.ask("POST", TREES, b"{}")
        assert (answer.status, answer.json["code"]) == (503, "unavailable")
        assert server.ask("GET", "/readyz").status == 200


def test_the_collector_of_a_server_keeps_what_its_database_refers_to(
    either_server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = either_server
    context = server.http.app.context
    context.files.location = context.files.location or str(tmp_path / "files")
    assert collect_once(context).trees == 0, "there is no folder yet"
    made = left(server, {"kept": b"kept"}, {"name": "n", "path": "kept"})
    taken = stored(server, {"taken": b"taken"})
    server.submit(graph(t=task(payload={"command": ["x"], "inputs": [taken]})))
    stored(server, {"unused": b"unused"})
    monkeypatch.setattr(file_gc, "UNUSED_SECONDS", -60.0)
    monkeypatch.setattr(file_gc, "SETTLE_SECONDS", 0.0)
    first, second = collect_once(context), collect_once(context)
    assert (first.trees, first.chunks, second.trees, second.chunks) == (1, 0, 0, 1)
    assert server.ask("GET", f"/api/v1/tasks/{made.tasks['a']}/files/kept").body == b"kept"
    assert server.ask("GET", f"{TREES}/{taken}").status == 200
    server.engine.transact(lambda transaction: transaction.repo.files.delete([made.key("a")]))
    assert collect_once(context).trees == 1
