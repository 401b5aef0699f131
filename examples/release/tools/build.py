"""Usage: build.py FOLDER. Builds tally.pyz and tally.tar.gz, the same bytes from the same sources every time."""

import gzip
import io
import sys
import tarfile
import zipfile
from pathlib import Path

EPOCH = (1980, 1, 1, 0, 0, 0)
LAUNCHER = "import runpy\nrunpy.run_module('tally', run_name='__main__')\n"


def sources() -> list[Path]:
    return sorted(Path("tally").glob("*.py"))


def build_program(target: Path) -> None:
    with target.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            texts = {"__main__.py": LAUNCHER} | {path.as_posix(): path.read_text() for path in sources()}
            for name, text in texts.items():
                archive.writestr(zipfile.ZipInfo(name, EPOCH), text)
    target.chmod(0o755)


def build_sources(target: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in [*sources(), Path("CHANGELOG.md")]:
            entry = tarfile.TarInfo(f"tally/{path.as_posix()}")
            entry.size = path.stat().st_size
            archive.addfile(entry, io.BytesIO(path.read_bytes()))
    target.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
build_program(folder / "tally.pyz")
build_sources(folder / "tally.tar.gz")
print(*(f"{path.name} {path.stat().st_size} bytes" for path in sorted(folder.iterdir())), sep="\n")
