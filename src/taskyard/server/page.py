"""The web page: its files, which `ui/` builds into the folder `page`, and the headers that keep it safe.

They are read and compressed once, at the first request, on a thread. Every other address that a browser opens is a deep
link into the page and gets its index. It loads nothing from elsewhere and no script that is not one of these files.
"""

import asyncio
import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from taskyard.server.auth import READ_METHODS
from taskyard.server.errors import problem_response, refused

FOLDER: Final = Path(__file__).with_name("page")
INDEX: Final = "/index.html"
#: Where files are whose names have a hash of what they hold.
HASHED: Final = "/assets/"
#: What is answered by the API, also when a browser opens it.
API: Final = ("/api/", "/healthz", "/readyz", "/metrics")
NOT_BUILT: Final = """\
This server runs, and its API is at /api/v1; but its page is not built.

In a copy of the source, `make page` builds it; packages from an index have it.
"""
_FOREVER: Final = "public, max-age=31536000, immutable"
#: The page asks each time whether it has changed; the answer is 304 if it has not.
_NO_CACHE: Final = "no-cache"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; manifest-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
SAFE: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
#: Smaller files are not worth compressing.
_COMPRESSED_MIN: Final = 1_000


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page, also compressed if that is smaller."""

    body: bytes
    compressed: bytes | None
    kind: str
    etag: str


class Page:
    """Serves the files of the page."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._files: dict[str, PageFile] = {}

    @staticmethod
    def serves(scope: Scope) -> bool:
        """Whether a request is for the page: a read of anything but the API."""
        return scope["method"] in READ_METHODS and not scope["path"].startswith(API)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a file, with the index for what a browser opens, or with 404."""
        if not self._files:
            self._files = await asyncio.to_thread(_load, self._folder)
        await self._answer(scope["path"], Headers(scope=scope))(scope, receive, send)

    def _answer(self, path: str, sent: Headers) -> Response:
        found = self._files.get(path)
        if found is None and path != "/" and "text/html" not in sent.get("accept", ""):
            return problem_response(refused(404, "not_found", f"there is no such route: GET {path}"))
        found = found or self._files.get(INDEX)
        if found is None:
            return PlainTextResponse(NOT_BUILT, 200, {**SAFE, "Cache-Control": "no-store"})
        is_hashed = path.startswith(HASHED) and path in self._files
        headers = {**SAFE, "Cache-Control": _FOREVER if is_hashed else _NO_CACHE, "ETag": found.etag}
        headers["Vary"] = "Accept-Encoding"
        if sent.get("if-none-match") == found.etag:
            return Response(status_code=304, headers=headers)
        if found.compressed is not None and "gzip" in sent.get("accept-encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return Response(found.compressed, 200, headers, found.kind)
        return Response(found.body, 200, headers, found.kind)


def _load(folder: Path) -> dict[str, PageFile]:
    """Read all files of the page; nothing if it is not built."""
    return {
        f"/{path.relative_to(folder).as_posix()}": _read(path) for path in sorted(folder.rglob("*")) if path.is_file()
    }


def _read(path: Path) -> PageFile:
    body = path.read_bytes()
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    compressed = gzip.compress(body, mtime=0) if len(body) >= _COMPRESSED_MIN else body
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return PageFile(body, compressed if len(compressed) < len(body) else None, kind, etag)
