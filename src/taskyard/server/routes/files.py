"""Routes of files: store trees and chunks for a pool, and read what tasks take and leave.

What is stored for a pool needs `submit` in it, and `read` to be read; the token of a running task may do both in the
pools of its graph. Files are named by their content, so a repetition changes nothing, and an upload that was cut off
goes on where it was. Nothing is served in a way that a browser would run.
"""

from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from taskyard.core.graph.model import NAME_MAX
from taskyard.core.graph.payload import must_have_left
from taskyard.core.graph.scalars import name_fault
from taskyard.core.matching import pool_of
from taskyard.files import blob_frames
from taskyard.files import store as files
from taskyard.files.blob_frames import BLOBS_MAX, BadFrames
from taskyard.files.digests import TREE_TEXT_MAX, BadTree, Tree, TreeFile, is_digest, path_fault, read_tree, sha256
from taskyard.lifecycle.commands import PublishedArtifact, PublishFiles, Refusal
from taskyard.lifecycle.definitions import decoded
from taskyard.server import requests
from taskyard.server.auth import Caller, Denial
from taskyard.server.context import AppContext, is_token_valid
from taskyard.server.dependencies import Context, CurrentCaller
from taskyard.server.errors import from_refusal, invalid, invalid_field, not_found, refused
from taskyard.server.requests import ByteRange, Fields, open_document
from taskyard.server.responses import JSON, Cursor, Download, IdempotencyKey, Page, body, caller_key, reply
from taskyard.server.routes.graphs import submit_permission
from taskyard.server.routes.tasks import own_run
from taskyard.server.tokens import READ, SUBMIT, scope
from taskyard.store.connection import Repo
from taskyard.store.repo.files import ArtifactRow, AttemptFilesRow
from taskyard.store.rows import TaskRecord
from taskyard.wire import api

routes = APIRouter(prefix="/api/v1", tags=["files"])
_PATH_OF: Final = attrgetter("path")
BYTES: Final = "application/octet-stream"
#: How many artifacts one attempt can name in one request.
ARTIFACTS_MAX: Final = 1_000
#: How many bytes of small blobs are read on a thread before they are sent.
READ_AHEAD_BYTES: Final = 1_048_576
#: How many files are on a page: more than of other lists, because they are short.
FILES_MAX: Final = 10_000
Digest = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="A SHA-256, as 64 hexadecimal digits.")]
Attempt = Annotated[int | None, Query(ge=0, le=2**53, description="The attempt; by default the last one.")]
_BLOBS: Final = {BYTES: {"schema": {"type": "string", "format": "binary"}}}
_BLOB_BODY: Final = {
    "requestBody": {
        "required": True,
        "content": _BLOBS,
        "description": f"At most {BLOBS_MAX} chunks, each behind its length as 4 bytes, the first byte the highest.",
    }
}
_TREE_BODY: Final = body(
    "A tree: its files with the digests of their chunks, its links, and its empty folders, each ordered by path.",
    {
        "type": "object",
        "properties": {
            "files": {"type": "array", "items": {"type": "object"}},
            "links": {"type": "array", "items": {"type": "object"}},
            "folders": {"type": "array", "items": {"type": "string"}},
        },
    },
    example={"files": [{"path": "readme.txt", "size": 0}]},
)
_DIGESTS: Final = body(
    "The digests of chunks.", {"type": "array", "maxItems": BLOBS_MAX, "items": {"type": "string"}}, example=[]
)
_ARTIFACT: Final = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "tree": {"type": "string"},
        "path": {"type": "string"},
        "content_type": {"type": "string"},
    },
    "required": ["name", "tree", "path"],
}
_LEFT: Final = body(
    "What the attempt leaves: the tree of its outputs, and named files of stored trees.",
    {
        "type": "object",
        "properties": {
            "pool": {"type": "string"},
            "tree": {"type": ["string", "null"]},
            "artifacts": {"type": "array", "maxItems": ARTIFACTS_MAX, "items": _ARTIFACT},
        },
        "required": ["pool"],
    },
)
_BINARY: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The content.", "content": _BLOBS},
    206: {"description": "The range of it that `Range` asked for.", "content": _BLOBS},
}
_CHUNKS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The chunks, each behind its length; ffffffff for one that is not there.", "content": _BLOBS}
}
_TREE_TEXT: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The tree, as it was stored.", "content": {JSON: {"schema": {"type": "object"}}}}
}


# What is stored for a pool.


@routes.post("/pools/{name}/trees", response_model=api.StoredTree, openapi_extra=_TREE_BODY)
async def add_tree(name: str, request: Request, context: Context, caller: CurrentCaller) -> Response:
    """Store a tree, unless chunks of it are missing: the answer names them. Needs `submit`."""
    _require(context, caller, SUBMIT, name)
    requests.check_content_type(request, (JSON,))
    async with requests.open_body(request, TREE_TEXT_MAX) as received:
        text = bytes(received)

        def add() -> api.StoredTree:
            try:
                tree = read_tree(text)
                missing = context.files.add_tree(name, tree)
            except BadTree as bad:
                raise invalid("this tree cannot be stored", [api.Fault(fault) for fault in bad.faults]) from None
            return api.StoredTree(sha256(text), len(tree.files), tree.size, missing)

        return reply(await context.files.on_thread(add))


@routes.get("/pools/{name}/trees/{digest}", responses=_TREE_TEXT)
async def show_tree(name: str, digest: Digest, context: Context, caller: CurrentCaller) -> Response:
    """Return a tree."""
    _require(context, caller, READ, name)
    text = await context.files.on_thread(lambda: context.files.store.get(files.trees(name), digest))
    if text is None:
        raise not_found(f"tree in pool {name} with the digest", digest)
    return Response(text, media_type=JSON)


@routes.post("/pools/{name}/blobs", response_model=api.StoredBlobs, openapi_extra=_BLOB_BODY)
async def add_blobs(name: str, request: Request, context: Context, caller: CurrentCaller) -> Response:
    """Store chunks; the answer has their digests. Needs `submit`."""
    _require(context, caller, SUBMIT, name)
    requests.check_content_type(request, (BYTES,))
    async with requests.open_body(request, blob_frames.BODY_MAX) as received:

        def add() -> api.StoredBlobs:
            try:
                bodies = [one or b"" for one in blob_frames.split(received)]
            except BadFrames as bad:
                raise invalid(str(bad)) from None
            if len(bodies) > BLOBS_MAX:
                raise invalid(f"a request may have at most {BLOBS_MAX} chunks")
            digests = [sha256(one) for one in bodies]
            context.files.store.put(files.blobs(name), dict(zip(digests, bodies, strict=True)))
            return api.StoredBlobs(digests)

        return reply(await context.files.on_thread(add))


@routes.post("/pools/{name}/blobs/read", responses=_CHUNKS, response_class=Response, openapi_extra=_DIGESTS)
async def read_blobs(name: str, request: Request, context: Context, caller: CurrentCaller) -> Response:
    """Return chunks, in the order in which they are asked for. Needs `read`."""
    _require(context, caller, READ, name)
    requests.check_content_type(request, (JSON,))
    asked = requests.parse(await requests.read_body(request, 80 * BLOBS_MAX), "body.json")
    if not isinstance(asked, list) or len(asked) > BLOBS_MAX or not all(map(is_digest, asked)):
        raise invalid(f"the body must be a list of at most {BLOBS_MAX} digests")
    space = files.blobs(name)

    read = partial(_read_frames, context, space, asked)
    count, pieces = await context.files.on_thread(lambda: read(0))
    headers = _headers(f"{name}.blobs")
    if count == len(asked):  # an answer of known length is not copied on its way out
        headers["Content-Length"] = str(sum(map(len, pieces)))
        return StreamingResponse(_sent(pieces), headers=headers, media_type=BYTES)

    async def answer() -> AsyncIterator[bytes]:
        start, left = count, pieces
        while left:
            for piece in left:
                yield piece
            more = start < len(asked) and await _is_valid(context, caller)
            start, left = await context.files.on_thread(partial(read, start)) if more else (start, [])

    return StreamingResponse(answer(), headers=headers, media_type=BYTES)


def _read_frames(context: AppContext, space: files.Space, asked: list[str], start: int) -> tuple[int, list[bytes]]:
    """Read chunks from a place in a list on, some at once; return the place of the next, and what is to be sent."""
    blobs: list[bytes | None] = []
    size = 0
    while start < len(asked) and size < READ_AHEAD_BYTES:
        blob = context.files.store.get(space, asked[start])
        blobs.append(blob)
        size += len(blob or b"")
        start += 1
    return start, blob_frames.pieces(blobs)


async def _sent(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


@routes.post(
    "/graphs/files",
    response_model=api.NeededTrees,
    openapi_extra=body("A graph document, as JSON or YAML.", {"type": "object"}, yaml=True, example={"tasks": {}}),
)
async def find_needed_trees(request: Request, context: Context, caller: CurrentCaller) -> Response:
    """List the trees that a graph takes, and whether they are stored in the pools that need them. Needs `submit`."""
    from taskyard.core.graph.parse import trees_named  # noqa: PLC0415
    from taskyard.engine import submit  # noqa: PLC0415

    async with open_document(request) as document, submit_permission(context, caller, "submit a graph") as sender:

        def look() -> api.NeededTrees:
            requests.check_size(document, context.settings.tasks_max)
            graph = submit.check_document(document, context.engine.clock.now(), context.engine.scheduler_id)
            if isinstance(graph, Refusal):
                raise from_refusal(graph)
            sender["may"](submit.pools_of(graph))
            wanted = trees_named(graph.tasks.values())
            missing = {one[1:] for one in context.files.missing_trees(wanted)} if wanted else set()
            return api.NeededTrees(
                [
                    api.NeededTree(tree, pool, (pool, tree) not in missing)
                    for pool, tree in sorted({one[1:] for one in wanted})
                ]
            )

        return reply(await context.files.on_thread(look))


# What tasks take and leave.


@dataclass(frozen=True, slots=True)
class _Left:
    """The output files of an attempt."""

    attempt: int
    row: AttemptFilesRow


@routes.get("/tasks/{task_id}/inputs/files", response_model=api.InputTrees)
async def list_input_trees(task_id: str, context: Context, caller: CurrentCaller) -> Response:
    """List the parts of trees that a task takes, in the order in which they are laid over each other."""
    return reply(await context.read_task(caller, READ, task_id, _inputs))


@routes.get("/tasks/{task_id}/files", response_model=api.TaskFiles)
async def list_files(
    task_id: str,
    context: Context,
    caller: CurrentCaller,
    attempt: Attempt = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=FILES_MAX, description="The most files to return.")] = 1_000,
) -> Response:
    """List the output files of an attempt, by path."""
    left = await _left(context, caller, task_id, attempt)
    after = requests.cursor_name(cursor, "")

    def look() -> api.TaskFiles:
        found = _views_after(context.files.tree(left.row.pool, left.row.tree), after, limit + 1)
        more = requests.encode_cursor(found[limit - 1].path) if len(found) > limit else None
        ref = api.FilesRef(left.row.tree, left.row.files, left.row.bytes)
        return api.TaskFiles(left.attempt, left.row.pool, ref, found[:limit], more)

    return reply(await context.files.on_thread(look))


@routes.get("/tasks/{task_id}/files/{path:path}", responses=_BINARY, response_class=Response)
async def show_file(
    task_id: str, path: str, request: Request, context: Context, caller: CurrentCaller, attempt: Attempt = None
) -> Response:
    """Return an output file of an attempt."""
    left = await _left(context, caller, task_id, attempt)
    return await _serve(context, caller, request, _Served(left.row.pool, left.row.tree, path, BYTES, left.attempt))


@routes.get("/tasks/{task_id}/artifacts", response_model=api.Artifacts)
async def list_artifacts(
    task_id: str, context: Context, caller: CurrentCaller, page: Page, attempt: Attempt = None
) -> Response:
    """List the named files of an attempt."""
    after = requests.cursor_name(page.cursor, "")

    def look(repo: Repo, one: TaskRecord) -> api.Artifacts:
        number = one.life.attempt if attempt is None else attempt
        rows = repo.files.artifacts(one.id, number, after, page.limit + 1)
        found = [api.ArtifactView(row.name, row.path, row.size, row.content_type) for row in rows[: page.limit]]
        more = requests.encode_cursor(found[-1].name) if len(rows) > page.limit else None
        return api.Artifacts(number, found, more)

    return reply(await context.read_task(caller, READ, task_id, look))


@routes.get("/tasks/{task_id}/artifacts/{name:path}", responses=_BINARY, response_class=Response)
async def show_artifact(
    task_id: str, name: str, request: Request, context: Context, caller: CurrentCaller, attempt: Attempt = None
) -> Response:
    """Return a named file of an attempt."""
    if "\0" in name:
        raise not_found("artifact", name)

    def look(repo: Repo, one: TaskRecord) -> tuple[int, ArtifactRow | None]:
        number = one.life.attempt if attempt is None else attempt
        return number, repo.files.artifact(one.id, number, name)

    number, row = await context.read_task(caller, READ, task_id, look)
    if row is None:
        raise not_found(f"artifact of attempt {number} of task {task_id}:", name)
    return await _serve(context, caller, request, _Served(row.pool, row.tree, row.path, row.content_type, number))


@routes.put("/tasks/{task_id}/files", status_code=204, openapi_extra=_LEFT)
async def put_files(
    task_id: str, request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = ""
) -> Response:
    """Say which stored files the running attempt leaves. Needs the task's own token."""
    run, scoped_key = own_run(context, caller, task_id), caller_key(caller, key)
    given = await requests.read_document(request, size_max=requests.SMALL_BODY_BYTES_MAX * 16)
    if not isinstance(given, dict):
        raise invalid("the body must be an object")
    pool, tree, named = _read_left(given)
    _require(context, caller, SUBMIT, pool)

    def publish() -> Refusal | None:
        found = _checked(context, pool, tree, named)
        return context.engine.publish_files(PublishFiles(run.task, run.attempt, run.fence, pool, *found), scoped_key)

    if refusal := await context.files.on_thread(publish):
        raise from_refusal(refusal)
    return Response(status_code=204)


def _read_left(given: dict[str, Any]) -> tuple[str, str | None, list[dict[str, Any]]]:
    artifacts = given.pop("artifacts", [])
    fields = Fields(given)
    pool, tree = fields.name("pool", ""), fields.text("tree", None)
    if tree is not None and not is_digest(tree):
        fields.add_fault("tree", "is not the digest of a tree")
    if not isinstance(artifacts, list) or len(artifacts) > ARTIFACTS_MAX:
        fields.add_fault("artifacts", f"must be a list of at most {ARTIFACTS_MAX} artifacts")
        artifacts = []
    faults = [fault for place, one in enumerate(artifacts) for fault in _artifact_faults(one, f"artifacts[{place}]")]
    fields.check()
    if faults:
        raise invalid("some artifacts cannot be kept", faults)
    return pool, tree, artifacts


def _artifact_faults(one: object, at: str) -> list[api.Fault]:
    known = {"name", "tree", "path", "content_type"}
    if not isinstance(one, dict) or not all(isinstance(value, str) for value in one.values()) or set(one) - known:
        return [api.Fault(f"must be an object with the texts {', '.join(sorted(known))}", at)]
    faults = []
    if fault := name_fault(one.get("name", ""), NAME_MAX):
        faults.append(api.Fault(fault, f"{at}.name"))
    if not is_digest(one.get("tree")):
        faults.append(api.Fault("is not the digest of a tree", f"{at}.tree"))
    if fault := path_fault(one.get("path", "")):
        faults.append(api.Fault(fault, f"{at}.path"))
    kind = one.get("content_type", BYTES)
    if not (kind.isascii() and kind.isprintable() and "/" in kind and len(kind) <= NAME_MAX):
        faults.append(api.Fault("is not a media type such as text/html", f"{at}.content_type"))
    return faults


def _checked(
    context: AppContext, pool: str, digest: str | None, named: list[dict[str, Any]]
) -> tuple[tuple[str, int, int] | None, tuple[PublishedArtifact, ...]]:
    """Look at the trees, which must be stored, and find the files that are named."""
    wanted = {one["tree"] for one in named} | ({digest} if digest else set())
    if missing := wanted - context.files.stored_trees(pool, wanted):
        raise refused(409, "conflict", f"tree {min(missing)} is not stored in pool {pool}: store it first")
    left = None
    if digest:
        tree = context.files.tree(pool, digest)
        left = (digest, len(tree.files), tree.size)
    found = []
    for place, one in enumerate(named):
        file = _file_of(context.files.tree(pool, one["tree"]), one["path"])
        if file is None:
            raise invalid_field("is no file of the tree", f"artifacts[{place}].path")
        kind = one.get("content_type", BYTES)
        found.append(PublishedArtifact(one["name"], one["tree"], one["path"], file.size, kind))
    return left, tuple(found)


def _inputs(repo: Repo, record: TaskRecord) -> api.InputTrees:
    """Resolve the inputs of the slice that is current."""
    one = decoded(repo.tasks.definitions([record.id])[record.id][1]).slices[record.life.slice_index]
    left = {found.label: found for found in repo.files.outputs_of_prerequisites([record.id])}
    items: list[api.InputTree] = []
    given: Any = one.payload.get("inputs")
    for entry in given or ():
        parts = {"tree": entry} if isinstance(entry, str) else entry
        path, to, label = parts.get("path"), parts.get("to"), parts.get("from")
        if label is None:
            items.append(api.InputTree(pool_of(one.dimensions), parts["tree"], path, to))
            continue
        found = left.get(label)
        if found is not None and found.tree is not None and found.pool is not None:
            items.append(api.InputTree(found.pool, found.tree, path, to, label))
        elif found is not None and must_have_left(found.state):
            # The bot refuses it: the prerequisite has kept nothing.
            items.append(api.InputTree("", "", path, to, label))
    return api.InputTrees(items)


async def _left(context: AppContext, caller: Caller, task_id: str, attempt: int | None) -> _Left:
    def look(repo: Repo, one: TaskRecord) -> tuple[int, AttemptFilesRow | None]:
        number = one.life.attempt if attempt is None else attempt
        return number, repo.files.outputs(one.id).get(number)

    number, row = await context.read_task(caller, READ, task_id, look)
    if row is None:
        raise not_found(f"output file of attempt {number} of task", task_id)
    return _Left(number, row)


def _views_after(tree: Tree, after: str, count: int) -> list[api.FileView]:
    """Show the first entries of a tree behind a path, by path."""
    files, links, folders = tree.files, tree.links, tree.folders
    start = bisect_right(files, after, key=_PATH_OF)
    found = [api.FileView(one.path, one.size, one.digest, one.executable) for one in files[start : start + count]]
    start = bisect_right(links, after, key=_PATH_OF)
    found += [api.FileView(one.path, link=one.target) for one in links[start : start + count]]
    start = bisect_right(folders, after)
    found += [api.FileView(one) for one in folders[start : start + count]]
    return sorted(found, key=_PATH_OF)[:count]


def _file_of(tree: Tree, path: str) -> TreeFile | None:
    place = bisect_left(tree.files, path, key=_PATH_OF)
    return tree.files[place] if place < len(tree.files) and tree.files[place].path == path else None


# Serving a file.


@dataclass(frozen=True, slots=True)
class _Served:
    """A file of a tree, its content type, and the attempt that left it."""

    pool: str
    tree: str
    path: str
    kind: str
    attempt: int


async def _serve(context: AppContext, caller: Caller, request: Request, served: _Served) -> Response:
    pool = served.pool
    tree = await context.files.on_thread(lambda: context.files.tree(pool, served.tree))
    file = _file_of(tree, served.path)
    if file is None:
        raise not_found(f"output file of attempt {served.attempt}:", served.path)
    tag = f'"{file.digest}"'
    headers = {
        **_headers(served.path.rpartition("/")[2]),
        "ETag": tag,
        "Accept-Ranges": "bytes",
        "X-Taskyard-Attempt": str(served.attempt),
    }
    asked = request.headers.get("range") if request.headers.get("if-range", tag) == tag else None
    ranged = requests.parse_range(asked, file.size)
    if ranged is not None and ranged.start >= ranged.until:
        only = {"Content-Range": f"bytes */{file.size}"}
        raise refused(416, "out_of_range", f"the file has {file.size} bytes", headers=only)
    span = ranged or ByteRange(0, file.size)
    headers["Content-Length"] = str(span.until - span.start)
    if ranged is not None:
        headers["Content-Range"] = f"bytes {span.start}-{span.until - 1}/{file.size}"
    # The first chunk is read before the answer begins: what is missing or damaged is a problem, not a cut-off answer.
    chunks = [part for part in file.parts() if part[1] < span.until and part[1] + part[2] > span.start]
    first = await context.files.on_thread(lambda: _chunk(context, pool, chunks[0][0])) if chunks else b""

    async def pieces() -> AsyncIterator[bytes]:
        for number, (chunk, start, _) in enumerate(chunks):
            if not await _is_valid(context, caller):
                return
            body = first if number == 0 else await context.files.on_thread(partial(_chunk, context, pool, chunk))
            yield body[max(0, span.start - start) : span.until - start]

    return Download(pieces(), 206 if ranged else 200, headers, served.kind)


async def _is_valid(context: AppContext, caller: Caller) -> bool:
    return await context.read(lambda repo: is_token_valid(repo, caller, context.engine.clock.now()))


def _chunk(context: AppContext, pool: str, digest: str) -> bytes:
    found = context.files.store.get(files.blobs(pool), digest)
    if found is None:
        raise refused(404, "not_found", f"a chunk of the file is missing or damaged: {digest}")
    return found


def _headers(name: str) -> dict[str, str]:
    """Keep browsers from interpreting what a task has left as a page of this server."""
    return {
        "X-Content-Type-Options": "nosniff",
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cache-Control": "private, no-cache",
    }


def _require(context: AppContext, caller: Caller, right: str, pool: str) -> None:
    """Refuse a caller without a right in a pool; a running task has it in the pools of its graph."""
    if fault := name_fault(pool):
        raise invalid_field(fault, "name")
    what = f"{right} files of pool {pool}"
    if caller.run is None:
        context.require(caller, right, frozenset({pool}), what)
    elif pool not in caller.run.pools:
        text = f"this needs the scope {scope(pool, right)}: a task's own token is for the pools of its graph"
        raise context.deny(Denial(403, "forbidden", text, caller.actor), what)
