"""Trees: their digests, and every hostile one that is refused, wherever it comes from."""

import fnmatch
import hashlib
import os
import socket
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskyard.files.collect as collecting
from taskyard.files.collect import Pattern, collect, missing
from taskyard.files.digests import (
    CHUNK_BYTES,
    ENTRIES_MAX,
    FOLDERS_MAX,
    TREE_BYTES_MAX,
    BadTree,
    Tree,
    TreeFile,
    TreeLink,
    file_digest,
    laid_over,
    make_tree,
    part_of,
    read_tree,
    sha256,
    tree_text,
)
from taskyard.files.place import Damaged, batches, place
from taskyard.sdk.local_inputs import LocalInputs
from tests.each_row import each_row

SOME = "a" * 64


def file(path: str, body: bytes = b"x") -> TreeFile:
    return TreeFile(path, len(body), (sha256(body),) if body else ())


def text_of(*files: str, links: dict[str, str] | None = None, folders: tuple[str, ...] = ()) -> bytes:
    """Write a tree without checking it."""
    made = Tree(tuple(file(one) for one in files), tuple(TreeLink(*one) for one in (links or {}).items()), folders)
    return tree_text(made)


def bodies(**named: bytes) -> dict[str, bytes]:
    return {sha256(body): body for body in named.values()}


def test_a_digest_is_what_sha256sum_prints_and_equal_folders_have_equal_trees(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / "b").write_bytes(b"b")
        (tmp_path / name / "a").write_bytes(b"hello")
        (tmp_path / name / "empty").touch()
        (tmp_path / name / "hollow").mkdir()
        (tmp_path / name / "link").symlink_to("./sub//b")
    one, two = collect(str(tmp_path / "one")), collect(str(tmp_path / "two"))
    assert tree_text(one) == tree_text(two)
    assert one.ref().digest == hashlib.sha256(tree_text(one)).hexdigest()
    assert [(each.path, each.digest) for each in one.files] == [
        ("a", hashlib.sha256(b"hello").hexdigest()),
        ("empty", hashlib.sha256(b"").hexdigest()),
        ("sub/b", hashlib.sha256(b"b").hexdigest()),
    ]
    assert one.links == (TreeLink("link", "sub/b"),)
    assert one.folders == ("hollow",)
    (tmp_path / "two" / "a").chmod(0o755)
    assert tree_text(collect(str(tmp_path / "two"))) != tree_text(one)


def test_a_large_file_is_cut_into_chunks_and_named_by_their_list(tmp_path: Path) -> None:
    body = os.urandom(CHUNK_BYTES) + b"rest"
    (tmp_path / "large").write_bytes(body)
    (found,) = collect(str(tmp_path)).files
    assert found.chunks == (sha256(body[:CHUNK_BYTES]), sha256(b"rest"))
    assert found.digest == file_digest(found.chunks) == sha256("\n".join(found.chunks).encode())
    assert list(found.parts()) == [(found.chunks[0], 0, CHUNK_BYTES), (found.chunks[1], CHUNK_BYTES, 4)]


HOSTILE = {
    "an absolute path": text_of("/etc/passwd"),
    "a way out": text_of("../x"),
    "a way out further in": text_of("a/../../x"),
    "a dot": text_of("a/./x"),
    "two slashes": text_of("a//x"),
    "a slash at the end": text_of("a/"),
    "a backslash": text_of("..\\x"),
    "a control character": text_of("a\nb"),
    "a NUL": text_of("a\0b"),
    "an empty path": text_of(""),
    "a very long name": text_of("a" * 256),
    "a very long path": text_of("/".join(["a" * 250] * 13)),
    "a very deep path": text_of("/".join("a" * 65)),
    "one path twice": text_of("a", "a"),
    "upper and lower case": text_of("README", "readme"),
    "upper and lower case of a folder": text_of("Src/a", "src/b"),
    "two spellings of a letter": text_of("\u00e9", "e\u0301"),
    "two spellings of a letter in upper and lower case": text_of("J\u0323\u030c", "\u01f0\u0323"),
    "a file that is a folder": text_of("a", "a/b"),
    "a link that is a folder": text_of("a/b", links={"a": "c"}),
    "a folder that is not empty": text_of("a/b", folders=("a",)),
    "a folder that leads out": text_of(folders=("../a",)),
    "a link with an absolute target": text_of(links={"l": "/etc"}),
    "a link out": text_of(links={"l": "../etc"}),
    "a link out from further in": text_of("a/x", links={"a/l": "../../etc"}),
    "a link out by way of a folder": text_of("a/x", links={"l": "a/../../etc"}),
    "a link through a link": text_of("d/x", links={"a": "d", "l": "a/x"}),
    "a link to nothing": text_of(links={"l": ""}),
    "the wrong order": text_of("b", "a"),
    "no digest": tree_text(Tree((TreeFile("a", 1, ("nonsense",)),))),
    "a digest in upper case": tree_text(Tree((TreeFile("a", 1, ("A" * 64,)),))),
    "a size without chunks": tree_text(Tree((TreeFile("a", 1),))),
    "chunks without a size": tree_text(Tree((TreeFile("a", 0, (SOME,)),))),
    "a negative size": tree_text(Tree((TreeFile("a", -1),))),
    "a bomb": tree_text(
        Tree((TreeFile("a", TREE_BYTES_MAX + CHUNK_BYTES, (SOME,) * (TREE_BYTES_MAX // CHUNK_BYTES + 1)),))
    ),
    "a chunk of two sizes": tree_text(Tree((TreeFile("a", CHUNK_BYTES + 5, (SOME, SOME)),))),
    "too many folders": text_of(folders=tuple(sorted(f"{n:03}/{'a/' * 60}z" for n in range(FOLDERS_MAX // 60)))),
    "too many entries": tree_text(Tree(tuple(TreeFile(f"{n:06}", 0) for n in range(ENTRIES_MAX + 1)))),
    "another field": b'{"files":[],"owner":"root"}',
    "another form": b'{ "files": [] }',
    "no tree": b"[]",
    "no JSON": b"\xff",
    "endless nesting": b"[" * 100_000,
}


@each_row(("text",), [(text,) for text in HOSTILE.values()], list(HOSTILE))
def test_hostile_trees_are_refused(text: bytes) -> None:
    with pytest.raises(BadTree):
        read_tree(text)


def test_links_that_stay_inside_are_kept(tmp_path: Path) -> None:
    tree = read_tree(text_of("a/b/x", "a/y", links={"a/b/l": "../y", "m": "a/b", "n": "nowhere", "self": "."}))
    place(tree, str(tmp_path), lambda _: bodies(x=b"x"))
    assert (tmp_path / "a/b/l").resolve() == tmp_path / "a/y"
    assert collect(str(tmp_path)).links == tree.links


def test_what_a_task_leaves_is_refused_if_it_is_no_file_or_leads_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(tmp_path / "socket"))
        (tmp_path / "out").symlink_to("/etc/passwd")
        with pytest.raises(BadTree) as bad:
            collect(str(tmp_path))
        assert sorted(fault.split(";")[0] for fault in bad.value.faults) == [
            "'pipe' is a named pipe",
            "'socket' is a socket",
        ]
    with pytest.raises(BadTree, match="link 'out' leads out of its folder"):
        collect(str(tmp_path), ["out"])
    (tmp_path / "x").touch()
    (tmp_path / "X").touch()
    with pytest.raises(BadTree, match="are the same on some machines"):
        collect(str(tmp_path), ["x", "X"])


def test_a_link_in_the_way_is_never_followed(tmp_path: Path) -> None:
    """A folder of the task may be a link by the time that its files are read or written."""
    secret, root = tmp_path / "secret", tmp_path / "root"
    secret.mkdir()
    root.mkdir()
    (secret / "key").write_text("secret")
    (root / "sub").symlink_to(secret)
    assert collect(str(root), ["sub/key", "sub/**"]).files == ()
    tree = make_tree([file("sub/key", b"mine")])
    for fresh in (True, False):
        with pytest.raises(BadTree, match="'sub' is not a folder"):
            place(tree, str(root), lambda _: bodies(x=b"mine"), fresh=fresh)
    (root / "file").symlink_to(secret / "key")
    place(make_tree([file("file", b"mine")]), str(root), lambda _: bodies(x=b"mine"), fresh=False)
    assert (root / "file").read_text() == "mine"
    assert (secret / "key").read_text() == "secret"


def test_patterns_name_files_folders_and_what_is_below(tmp_path: Path) -> None:
    for path in ("dist/app", "dist/lib/x.so", "a.txt", "b.txt", "deep/er/c.txt", "deep/d.log", "[x]"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()

    def found(*patterns: str) -> list[str]:
        return [one.path for one in collect(str(tmp_path), patterns).files]

    assert found("dist/") == found("dist") == ["dist/app", "dist/lib/x.so"]
    assert found("*.txt") == ["a.txt", "b.txt"]
    assert found("**/*.txt") == ["a.txt", "b.txt", "deep/er/c.txt"]
    assert found("deep/**") == ["deep/d.log", "deep/er/c.txt"]
    assert found("d*") == ["deep/d.log", "deep/er/c.txt", "dist/app", "dist/lib/x.so"]
    assert found("[ab].txt", "a.txt") == ["a.txt", "b.txt"]
    assert found("[!a].txt") == ["b.txt"]
    assert found("?.txt") == ["a.txt", "b.txt"]
    assert found("[[]x[]]") == ["[x]"]
    assert found("nothing", "no*thing") == []
    assert missing(str(tmp_path), ["dist/", "nothing", "no*thing", "dist/none"]) == ["nothing", "dist/none"]


def names(steps: list[str], path: list[str]) -> bool:
    """Compare a pattern with a path by trying everything."""
    if not steps or not path:
        return not steps
    if steps == ["**"]:
        return True
    if steps[0] == "**":
        return names(steps[1:], path) or names(steps, path[1:])
    return fnmatch.fnmatchcase(path[0], steps[0]) and names(steps[1:], path[1:])


STEPS = st.sampled_from(["**", "*", "a", "?", "a*b", "*a*b*", "[!a]*", "*?b"])


@given(st.lists(STEPS, min_size=1, max_size=5), st.lists(st.text(alphabet="ab", min_size=1), min_size=1, max_size=5))
def test_a_pattern_names_what_the_slowest_comparison_finds(steps: list[str], path: list[str]) -> None:
    assert Pattern("/".join(steps)).matches("/".join(path)) == names(steps, path)


def test_no_pattern_takes_long_whatever_the_names_are() -> None:
    """A task chooses both; a comparison that tried everything would hold up its bot for ever."""
    assert not Pattern("*a" * 100 + "*b").matches("a" * 250)
    assert not Pattern("**/*/" * 30 + "b").matches("/".join("a" * 64))
    assert Pattern("*a" * 100 + "*b").matches("a" * 250 + "b")


def test_there_are_bounds_to_what_patterns_look_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (tmp_path / str(number)).touch()
    monkeypatch.setattr(collecting, "COMPARED_MAX", 100)
    assert len(collect(str(tmp_path), ["*"] * 5).files) == 20
    with pytest.raises(BadTree, match="too many patterns for the 20 entries"):
        collect(str(tmp_path), ["*"] * 6)
    monkeypatch.setattr(collecting, "SCANNED_MAX", 19)
    with pytest.raises(BadTree, match="more than 19 entries"):
        collect(str(tmp_path))
    with pytest.raises(InterruptedError):
        collect(str(tmp_path), ["*"], stop=lambda: True)


@given(st.text(alphabet="ab*?[]!^/.\\-", max_size=20), st.text(alphabet="ab/", max_size=10))
def test_any_pattern_can_be_tried(pattern: str, path: str) -> None:
    Pattern(pattern or "x").matches(path)


@pytest.mark.parametrize(
    ("before", "after"), [(6, 7), (6, 5), (0, 1), (CHUNK_BYTES + 5, CHUNK_BYTES), (CHUNK_BYTES, 1)]
)
def test_a_file_that_changes_while_it_is_read_is_noticed(tmp_path: Path, before: int, after: int) -> None:
    (tmp_path / "log").write_bytes(bytes(before))
    (entry,) = collecting._Scanner(str(tmp_path), collecting.never).below()
    (tmp_path / "log").write_bytes(bytes(after))
    with pytest.raises(collecting.Changed, match="'log' was changed"):
        collecting._read_all(str(tmp_path), [entry], collecting.never, collecting.SILENT)


def test_damaged_and_missing_chunks_are_refused_and_nothing_half_is_left(tmp_path: Path) -> None:
    tree = make_tree([file("a", b"good"), file("b", b"bad")])
    (tmp_path / "b").write_text("before")
    for answer in ({sha256(b"good"): b"good"}, {sha256(b"good"): b"good", sha256(b"bad"): b"BAD"}):
        with pytest.raises(Damaged, match="a chunk of 'b' is missing or damaged"):
            place(tree, str(tmp_path), lambda _, found=answer: found, fresh=False)  # type: ignore[misc]
    assert (tmp_path / "b").read_text() == "before"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a", "b"]


def test_a_tree_that_does_not_fit_on_the_disk_is_refused_before_anything_is_fetched(tmp_path: Path) -> None:
    size = TREE_BYTES_MAX - TREE_BYTES_MAX % CHUNK_BYTES
    tree = make_tree([TreeFile("bomb", size, (SOME,) * (size // CHUNK_BYTES))])
    with pytest.raises(BadTree, match="are free on the disk"):
        place(tree, str(tmp_path), lambda _: pytest.fail("it was fetched"))


def test_parts_are_moved_and_laid_over_each_other() -> None:
    tree = make_tree(
        [file("dist/app"), file("dist/lib/so"), file("readme")], [TreeLink("dist/l", "lib")], ["dist/void"]
    )
    paths = [one.path for one in part_of(tree, "dist/", "bin/").files]
    assert paths == ["bin/app", "bin/lib/so"]
    assert part_of(tree, "dist", "bin").links == (TreeLink("bin/l", "lib"),)
    assert part_of(tree, "dist", "bin").folders == ("bin/void",)
    assert part_of(tree, "", None) == tree
    assert part_of(tree, "", "in").files[0].path == "in/dist/app"
    assert part_of(tree, "readme", "docs/").files[0].path == "docs/readme"
    assert part_of(tree, "readme", "README.md").files[0].path == "README.md"
    assert part_of(tree, "readme", None).files[0].path == "readme"
    assert part_of(tree, "dist/void", None).folders == ("dist/void",)
    with pytest.raises(BadTree, match="there is no 'none'"):
        part_of(tree, "none", None)
    assert part_of(make_tree([file("a/x")], [TreeLink("a/l", "x")]), "a", "").links == (TreeLink("l", "x"),)
    with pytest.raises(BadTree, match="leads out"):
        part_of(make_tree([file("a/x")], [TreeLink("b/l", "../a/x")]), "b", "")
    over = laid_over([tree, make_tree([file("readme", b"new"), file("dist/void/x")])])
    assert {one.path: one.digest for one in over.files}["readme"] == sha256(b"new")
    assert over.folders == ()
    with pytest.raises(BadTree, match="is a file or a link and a folder"):
        laid_over([tree, make_tree([file("readme/x")])])
    with pytest.raises(BadTree, match="is a file or a link and a folder"):
        laid_over([make_tree([], [TreeLink("in", ".")]), make_tree([file("in/x")])])


PARTS = st.sampled_from(["a", "b", "..", ".", "", "A", "é", "c"])
PATHS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)


@given(st.lists(PATHS, max_size=4), st.dictionaries(PATHS, PATHS, max_size=3), st.lists(PATHS, max_size=2))
def test_no_tree_that_is_accepted_writes_outside_of_its_folder(
    tmp_path_factory: pytest.TempPathFactory, files: list[str], links: dict[str, str], folders: list[str]
) -> None:
    """Whatever a tree holds, it is refused, or all of it is inside: files, and where links lead."""
    try:
        tree = make_tree((file(one) for one in files), (TreeLink(*one) for one in links.items()), folders)
    except BadTree:
        return
    outer = tmp_path_factory.mktemp("outer")
    root = outer / "root"
    place(tree, str(root), lambda _: bodies(x=b"x"))
    assert [one.name for one in outer.iterdir()] == ["root"]
    for link in tree.links:
        if os.path.exists(root / link.path):
            assert (root / link.path).resolve().is_relative_to(root.resolve()), link
    assert read_tree(tree_text(collect(str(root)))) == tree


def test_a_folder_for_all_tasks_is_given_to_those_that_take_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    payloads: dict[str, dict[str, object]] = {
        "script": {"script": "true"},
        "play": {"ansible": "site.yml"},
        "checkout": {"git": "/srv/ops.git"},
        "ask": {"approval": "Ship it?"},
    }
    document = {"tasks": {label: {"task": {"payload": one}} for label, one in payloads.items()}}
    made = LocalInputs(str(tmp_path)).resolved(document, whole=".")
    given = {label for label, node in made["tasks"].items() if "inputs" in node["task"]["payload"]}
    assert given == {"script", "play"}


def test_chunks_are_divided_into_requests() -> None:
    assert batches({}) == []
    assert batches({"a": 5, "b": 5, "c": 1}, 6) == [["a"], ["b", "c"]]
    assert [len(one) for one in batches({str(number): 0 for number in range(2_500)})] == [1_000, 1_000, 500]


def test_a_tree_is_plain_json() -> None:
    tree = make_tree([file("a")], [TreeLink("l", "a")], ["e"])
    assert msgspec.json.decode(tree_text(tree)) == {
        "files": [{"path": "a", "size": 1, "chunks": [sha256(b"x")]}],
        "links": [{"path": "l", "target": "a"}],
        "folders": ["e"],
    }
