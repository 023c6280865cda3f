"""The command line with a function that never returns: `blocked.py MODULE NAME CALLS ARGUMENTS`.

The function is the attribute NAME of MODULE; it does as it should so many times. Then it prints "blocked",
and computes for hours without listening to Python.
"""

from __future__ import annotations

import hashlib
import sys
from importlib import import_module
from typing import Any

from tnplan.cli.main import main


def block() -> None:
    """Say so, and go on for hours."""
    print("blocked", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", (1 << 31) - 1)


if __name__ == "__main__":
    place, name, calls = import_module(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    del sys.argv[1:4]
    call, done = getattr(place, name), 0

    def blocking(*arguments: Any, **named: Any) -> Any:
        global done
        done += 1
        if done > calls:
            block()
        return call(*arguments, **named)

    setattr(place, name, blocking)
    main()
