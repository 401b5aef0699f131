"""Usage: publish.py FOLDER SHELF. Copies a release onto the shelf, each file whole or not at all."""

import os
import runpy
import shutil
import sys
from pathlib import Path

version = runpy.run_path("tally/__init__.py")["__version__"]
folder, shelf = Path(sys.argv[1]), Path(sys.argv[2]) / version
shelf.mkdir(parents=True, exist_ok=True)
for path in sorted(folder.iterdir()):
    unfinished = shelf / f".{path.name}.{os.getpid()}"
    shutil.copy2(path, unfinished)
    unfinished.replace(shelf / path.name)
print(f"tally {version} is in {shelf}:", *sorted(path.name for path in shelf.iterdir()), sep="\n  ")
