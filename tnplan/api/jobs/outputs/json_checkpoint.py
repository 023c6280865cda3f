"""A checkpoint of a job whose parts are rows of numbers: JSON, in a file beside the output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tnplan.planner.common.errors import InputError
from tnplan.planner.common.files import read_json, write_text


class JsonCheckpoint:
    """What is done of a job. Rank 0 alone reads and writes it; a kind has its format, and reads its rows."""

    FORMAT = ""
    VERSION = 1
    IS_OF = ""
    """What its identity is made of, in the refusal of the file of another job."""

    def __init__(self, path: Path, identity: str, resume: bool) -> None:
        self.path, self._identity, self._resume = path, identity, resume

    def document(self) -> dict[str, Any] | None:
        """That of an interrupted job; None where there is no file. Refuses the file of another job."""
        if not self.path.exists():
            return None
        if not self._resume:
            raise InputError(
                str(self.path), "is the checkpoint of an interrupted job",
                "continue it with --resume, or delete the file to start again",
            )  # fmt: skip
        document = read_json(self.path, self.FORMAT, self.VERSION, "delete the file")
        if document.get("identity") != self._identity:
            raise InputError(
                str(self.path), f"belongs to another {self.IS_OF}",
                "resume with those of that job, or delete the file to start again",
            )  # fmt: skip
        return document

    def damaged(self) -> InputError:
        """The refusal of a file whose rows cannot be read."""
        return InputError(str(self.path), "is a damaged checkpoint", "delete the file to start again")

    def replace(self, rows: dict[str, Any]) -> None:
        """Write the rows that are done."""
        content = {"format": self.FORMAT, "version": self.VERSION, "identity": self._identity, **rows}
        write_text(self.path, json.dumps(content) + "\n")

    def remove(self) -> None:
        """Delete the file, if there is one."""
        self.path.unlink(missing_ok=True)
