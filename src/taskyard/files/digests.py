"""Trees: what a folder holds, written as one text, whose SHA-256 is the digest of the tree.

A file is a list of chunks, each named by the SHA-256 of its content; all but the last have `CHUNK_BYTES`. So an upload
that was interrupted goes on at the chunk where it was, and nothing larger than a chunk is ever held in memory. A file
of one chunk has the digest of its content; a larger one has the SHA-256 of the list of its chunks, one per line.

A tree comes from another machine, so it is not trusted: `read_tree` refuses every tree that could write outside of its
folder, or that would not be the same on each kind of machine. Clients, bots and servers all use it.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

#: What travels in one request, and is verified before it is stored: it arrives within a minute on a slow line.
CHUNK_BYTES: Final = 8 * 1024 * 1024
#: The most files, links and empty folders of a tree. Larger ones are better packed by the task itself.
ENTRIES_MAX: Final = 100_000
#: The most folders of a tree that are not empty: they are not listed, and a few long paths could name millions.
FOLDERS_MAX: Final = 100_000
#: The longest text of a tree: the most entries, with paths of usual length.
TREE_TEXT_MAX: Final = 24 * 1024 * 1024
#: The most bytes of all files of a tree together: a larger one does not fit on the disks of most machines.
TREE_BYTES_MAX: Final = 256 * 1024 * 1024 * 1024
#: Linux's PATH_MAX less the folder that the tree is placed in, its NAME_MAX, and deeper than any real folder.
PATH_BYTES_MAX: Final = 3_072
NAME_BYTES_MAX: Final = 255
DEPTH_MAX: Final = 64
#: How many faults of a tree are listed.
FAULTS_MAX: Final = 20

DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_HIDDEN: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff\\\\]")


class BadTree(ValueError):
    """A tree that cannot be used; `faults` says why."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = tuple(faults)


class TreeFile(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A file."""

    path: str
    size: int
    chunks: tuple[str, ...] = ()
    executable: bool = False

    @property
    def digest(self) -> str:
        """The digest of its content."""
        return file_digest(self.chunks)

    def parts(self) -> Iterator[tuple[str, int, int]]:
        """Yield each chunk with its offset and its size."""
        for place, chunk in enumerate(self.chunks):
            start = place * CHUNK_BYTES
            yield chunk, start, min(CHUNK_BYTES, self.size - start)


class TreeLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A symbolic link to another entry of the same tree."""

    path: str
    target: str  # relative to the folder of the link


class Tree(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A folder: its files and links, and the folders that are empty; each list is ordered by path."""

    files: tuple[TreeFile, ...] = ()
    links: tuple[TreeLink, ...] = ()
    folders: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """The bytes of all its files."""
        return sum(one.size for one in self.files)

    def chunks(self) -> dict[str, int]:
        """Return the size of each chunk that its files need."""
        return {chunk: size for one in self.files for chunk, _, size in one.parts()}

    def ref(self) -> "FilesRef":
        """Name it in short."""
        return FilesRef(sha256(tree_text(self)), len(self.files), self.size)


class FilesRef(msgspec.Struct, frozen=True, gc=False):
    """A tree in short."""

    digest: str
    files: int
    bytes: int


def sha256(body: "Blob") -> str:
    """Return the digest of some bytes."""
    return hashlib.sha256(body).hexdigest()


#: Bytes that are not copied on their way.
Blob: TypeAlias = bytes | memoryview
#: The digest of an empty file.
EMPTY: Final = sha256(b"")


def file_digest(chunks: Sequence[str]) -> str:
    """Return the digest of a file."""
    if not chunks:
        return EMPTY
    return chunks[0] if len(chunks) == 1 else sha256("\n".join(chunks).encode())


class FileDigest:
    """Computes the digest of a file that comes piece by piece."""

    def __init__(self) -> None:
        self._chunks: list[str] = []
        self._open, self._size = hashlib.sha256(), 0

    def add(self, piece: bytes) -> None:
        """Add what comes next."""
        rest = memoryview(piece)
        while rest:
            if self._size == CHUNK_BYTES:
                self._chunks.append(self._open.hexdigest())
                self._open, self._size = hashlib.sha256(), 0
            part, rest = rest[: CHUNK_BYTES - self._size], rest[CHUNK_BYTES - self._size :]
            self._open.update(part)
            self._size += len(part)

    def digest(self) -> str:
        """Return the digest of what was added."""
        return file_digest([*self._chunks, self._open.hexdigest()] if self._size else [])


def is_digest(text: object) -> bool:
    """Whether this is a digest."""
    return isinstance(text, str) and DIGEST.fullmatch(text) is not None


def make_tree(files: Iterable[TreeFile], links: Iterable[TreeLink] = (), folders: Iterable[str] = ()) -> Tree:
    """Make a tree in its one order; raise BadTree if it cannot be used."""
    tree = Tree(
        tuple(sorted(files, key=lambda one: one.path)),
        tuple(sorted(links, key=lambda one: one.path)),
        tuple(sorted(folders)),
    )
    check(tree)
    return tree


def tree_text(tree: Tree) -> bytes:
    """Write a tree: equal trees have equal texts."""
    return msgspec.json.encode(tree)


_READER: Final = msgspec.json.Decoder(Tree)


def entries(tree: Tree) -> int:
    """Count the files, links and empty folders of a tree."""
    return len(tree.files) + len(tree.links) + len(tree.folders)


def read_tree(text: bytes) -> Tree:
    """Read the text of a tree; raise BadTree if it is none, or a hostile one."""
    if len(text) > TREE_TEXT_MAX:
        raise BadTree([f"the tree is longer than {TREE_TEXT_MAX} bytes"])
    try:
        tree = _READER.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadTree([f"this is no tree: {error}"]) from None
    check(tree)
    if not _is_ordered(tree) or tree_text(tree) != text:
        raise BadTree(["the tree is not written in its shortest form, each list ordered by path"])
    return tree


def _is_ordered(tree: Tree) -> bool:
    lists = ([one.path for one in tree.files], [one.path for one in tree.links], list(tree.folders))
    return all(paths == sorted(paths) for paths in lists)


def check(tree: Tree) -> None:
    """Raise BadTree if a tree cannot be used."""
    count = entries(tree)
    if count > ENTRIES_MAX:
        raise BadTree([f"the tree has {count} entries; at most {ENTRIES_MAX}"])
    faults: list[str] = []
    for found in _faults(tree):
        faults.append(found)
        if len(faults) == FAULTS_MAX:
            break
    if not faults and tree.size > TREE_BYTES_MAX:
        faults.append(f"the files have {tree.size} bytes together; at most {TREE_BYTES_MAX}")
    if faults:
        raise BadTree(faults)


def _faults(tree: Tree) -> Iterator[str]:
    for one in tree.files:
        if fault := path_fault(one.path) or _content_fault(one):
            yield f"file {shown(one.path)} {fault}"
    for link in tree.links:
        if fault := path_fault(link.path):
            yield f"link {shown(link.path)} {fault}"
    for folder in tree.folders:
        if fault := path_fault(folder):
            yield f"folder {shown(folder)} {fault}"
    yield from _size_faults(tree)
    yield from _clashes(tree)
    yield from _link_faults(tree)


def path_fault(path: str) -> str | None:
    """Say why a path cannot be used in a tree."""
    if not path or path.startswith("/"):
        return "must be a relative path"
    if found := _HIDDEN.search(path):
        return f"has the character {found[0]!r} in its path"
    parts = path.split("/")
    if "" in parts or "." in parts:
        return "is not in its shortest form"
    if ".." in parts:
        return "leads out of its folder"
    if len(path.encode()) > PATH_BYTES_MAX or any(len(part.encode()) > NAME_BYTES_MAX for part in parts):
        return f"has a path of more than {PATH_BYTES_MAX} bytes, or a name of more than {NAME_BYTES_MAX}"
    return f"is in more than {DEPTH_MAX} folders" if len(parts) > DEPTH_MAX else None


def _content_fault(one: TreeFile) -> str | None:
    if one.size < 0 or len(one.chunks) != -(-one.size // CHUNK_BYTES):
        return f"has {len(one.chunks)} chunks; its size of {one.size} bytes needs others"
    if not all(map(DIGEST.fullmatch, one.chunks)):
        return "has a chunk whose digest is not one"
    return None


def _size_faults(tree: Tree) -> Iterator[str]:
    """Find chunks that would have two sizes: one of the files could never be written."""
    sizes: dict[str, int] = {}
    for one in tree.files:
        for chunk, _, size in one.parts():
            if sizes.setdefault(chunk, size) != size:
                yield f"file {shown(one.path)} has a chunk that has another size elsewhere"
                break


def _clashes(tree: Tree) -> Iterator[str]:
    """Find paths that are the same on some machine: upper and lower case, or two spellings of one character."""
    paths = [*(one.path for one in tree.files), *(one.path for one in tree.links), *tree.folders]
    parents = _all_parents(paths)
    if len(parents) > FOLDERS_MAX:
        yield f"the tree has more than {FOLDERS_MAX} folders"
        return
    for path in paths:
        if path in parents:
            yield f"{shown(path)} is a file or a link and a folder, too, or a folder that is not empty"
    spelled: dict[str, str] = {}
    for path in [*paths, *parents]:
        before = spelled.setdefault(_folded(path), path)
        if before != path:
            yield f"{shown(path)} and {shown(before)} are the same on some machines"
    if len(set(paths)) != len(paths):
        yield "a path is there twice"


def _folded(path: str) -> str:
    """Return what all spellings of a path have in common, as Unicode defines it."""
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", path).casefold())


def _all_parents(paths: Iterable[str]) -> set[str]:
    """Return the folders around paths; if there are too many, one more than a tree may have."""
    found: set[str] = set()
    for path in paths:
        for parent in _parents(path):
            if parent in found:
                break
            found.add(parent)
        if len(found) > FOLDERS_MAX:
            break
    return found


def _parents(path: str) -> Iterator[str]:
    while (cut := path.rfind("/")) > 0:
        path = path[:cut]
        yield path


def _link_faults(tree: Tree) -> Iterator[str]:
    """Find links that lead out of the tree. What a link leads through must be folders, never other links."""
    links = {one.path for one in tree.links}
    for one in tree.links:
        reached = link_end(one)
        if reached is None:
            yield f"link {shown(one.path)} leads out of its folder, or is not in its shortest form"
        elif not links.isdisjoint(_parents(reached)):
            yield f"link {shown(one.path)} leads through another link"


def link_end(link: TreeLink) -> str | None:
    """Return the path in the tree that a link leads to, "" for the whole tree; None if it leads out."""
    target = link.target
    if not target or target.startswith("/") or _HIDDEN.search(target):
        return None
    if len(target.encode()) > PATH_BYTES_MAX:
        return None
    parts = target.split("/")
    up = 0
    while up < len(parts) and parts[up] == "..":
        up += 1
    rest, folder = parts[up:], link.path.split("/")[:-1]
    # Further on, `..` could leave a folder that is a link; at the beginning all folders are real.
    if up > len(folder) or any(part in ("", "..") for part in rest) or ("." in rest and rest != ["."]):
        return None
    return "/".join([*folder[: len(folder) - up], *(part for part in rest if part != ".")])


def shown(path: str) -> str:
    """Show a path in a message: escaped, and cut if it is long."""
    text = ascii(path)
    return text if len(text) <= 200 else f"{text[:200]}..."


# Parts of trees, moved and laid over each other, as the inputs of a task name them.


def part_of(tree: Tree, path: str, to: str | None) -> Tree:
    """Return a file or a folder of a tree, moved to another place; raise BadTree if there is none.

    A folder keeps its path, or `to` becomes the folder. A file keeps its path, or `to` is its new one, or its new
    folder if that ends with a slash.
    """
    wanted = path.strip("/")
    if wanted in {one.path for one in tree.files} | {one.path for one in tree.links}:
        name = wanted.rpartition("/")[2]
        new = wanted if to is None else f"{to}{name}" if to.endswith("/") else to or name
        return make_tree(
            (msgspec.structs.replace(one, path=new) for one in tree.files if one.path == wanted),
            (msgspec.structs.replace(one, path=new) for one in tree.links if one.path == wanted),
        )
    inside = f"{wanted}/" if wanted else ""
    root = wanted if to is None else to.strip("/")

    def moved(old: str) -> str:
        rest = old[len(inside) :]
        return f"{root}/{rest}" if root else rest

    files = [msgspec.structs.replace(one, path=moved(one.path)) for one in tree.files if one.path.startswith(inside)]
    links = [msgspec.structs.replace(one, path=moved(one.path)) for one in tree.links if one.path.startswith(inside)]
    folders = [moved(one) for one in tree.folders if one.startswith(inside)]
    if wanted and wanted in tree.folders:
        folders.append(root)
    elif wanted and not (files or links or folders):
        raise BadTree([f"there is no {shown(path)} in it"])
    return make_tree(files, links, filter(None, folders))


def laid_over(trees: Iterable[Tree]) -> Tree:
    """Lay trees over each other: of two entries with one path, the later is kept."""
    files: dict[str, TreeFile] = {}
    links: dict[str, TreeLink] = {}
    folders: set[str] = set()
    for tree in trees:
        for file in tree.files:
            links.pop(file.path, None)
            files[file.path] = file
        for link in tree.links:
            files.pop(link.path, None)
            links[link.path] = link
        folders.update(tree.folders)
    filled = {parent for path in (*files, *links, *folders) for parent in _parents(path)}
    return make_tree(files.values(), links.values(), folders - filled)
