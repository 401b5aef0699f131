"""Usage: checksums.py FOLDER. Writes SHA256SUMS over what is in the folder."""

import hashlib
import sys
from pathlib import Path

folder = Path(sys.argv[1])
files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("SHA256SUMS")]
lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}" for path in files]
(folder / "SHA256SUMS").write_text("\n".join(lines) + "\n")
print(*lines, sep="\n")
