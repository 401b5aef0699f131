"""Usage: sign.py make|check FOLDER. Writes or checks SHA256SUMS.sig, a keyed hash of SHA256SUMS.

A demonstration: a real release is signed with a key pair, and the passphrase comes from a secret.
"""

import hashlib
import hmac
import sys
from pathlib import Path

ROUNDS = 600_000  # what is advised for PBKDF2 with SHA-256


def signature(folder: Path) -> str:
    key = hashlib.pbkdf2_hmac("sha256", b"only a demonstration", b"tally", ROUNDS)
    return hmac.new(key, (folder / "SHA256SUMS").read_bytes(), "sha256").hexdigest()


action, folder = sys.argv[1], Path(sys.argv[2])
signed = folder / "SHA256SUMS.sig"
if action == "make":
    signed.write_text(signature(folder) + "\n")
elif not hmac.compare_digest(signed.read_text().strip(), signature(folder)):
    sys.exit("the signature does not fit")
print(f"{signed.name} {signed.read_text()[:16]}...")
