"""What `tnplan compress` and `tnplan decompress` refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tnplan
from tests.support.kernels.compress_arrays import make_array
from tests.support.robustness.refusals import Refusal, Row, table

LONG = "x" * 300

# fmt: off
COMPRESS: list[Row] = [
    ("t.npy --bound -1", "t.npy: bound", "is -1.0", "give a finite number of"),
    ("t.npy --bound nan", "t.npy: bound", "is nan", "give a finite number of"),
    ("t.npy --bound x", "Invalid value for '--bound'", "'x' is not a valid float", "see 'tnplan compress"),
    ("whole.npy", "whole.npy", "holds integers (int64)", "give the bound 0"),
    ("spoilt.npy --refuse-nonfinite", "spoilt.npy", "holds NaN or infinities", "replace them, or allow"),
    ("text.npy", "text.npy", "cannot be read (it is not an .npy file)", "give an array that"),
    ("objects.npy", "objects.npy", "cannot be read", "give an array that"),
    ("cut.npy", "cut.npy", "cannot be read", "give the whole file"),
    ("absent.npy", "absent.npy", "cannot be read (No such file", "check the name and the"),
    ("t.npy -o t.npy", "t.npy", "is an input and would be replaced", "give the output another"),
    ("t.npy -o no/x", "no/x", "its folder does not exist", "choose a folder that"),
    ("t.npy -o ''", "Invalid value for '-o' / '--output'", "the path is empty", "give the name of a"),
    (f"t.npy -o {LONG}", LONG, "cannot be written (File name too long)", "give another name"),
]
DECOMPRESS: list[Row] = [
    ("t.npy", "t.npy", "does not end in .tnz", "name the output with -o"),
    ("t.npy -o x.npy", "t.npy", "is not a compressed array of tnplan", "give what 'tnplan"),
    ("damaged.npy.tnz", "damaged.npy.tnz: stream: frame 0", "is damaged", "give the stream as it"),
    ("newer.npy.tnz", "newer.npy.tnz", "is version 9 of tnplan.compressed", "this tnplan reads 1 to 4"),
    ("absent.tnz", "absent.tnz", "cannot be read", "check the name and the"),
]
# fmt: on


@pytest.fixture(autouse=True)
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array that can be compressed, in the working folder."""
    monkeypatch.chdir(tmp_path)
    np.save("t.npy", make_array("mirrored", 5000, "complex64", 1).reshape(50, 100))


@table(COMPRESS)
def test_an_array_is_refused(refusal: Refusal, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("whole.npy", np.arange(5))
    np.save("spoilt.npy", np.array([1.0, np.nan]))
    Path("text.npy").write_text("no array")
    np.save("objects.npy", np.array([None]), allow_pickle=True)
    Path("cut.npy").write_bytes(Path("t.npy").read_bytes()[:-8])
    refusal.ends(f"compress {refusal.given}", capsys)


@table(DECOMPRESS)
def test_a_stream_is_refused(refusal: Refusal, capsys: pytest.CaptureFixture[str]) -> None:
    packed = Path(tnplan.compress_file("t.npy")["output"]).read_bytes()
    Path("damaged.npy.tnz").write_bytes(packed[:-1] + bytes([packed[-1] ^ 1]))
    Path("newer.npy.tnz").write_bytes(packed.replace(b"CZ\x01\0", b"CZ\x09\0", 1))
    refusal.ends(f"decompress {refusal.given}", capsys)
