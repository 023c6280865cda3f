"""`tnplan compress` and `decompress`: files in, files out, reports, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import tnplan
from tests.support.kernels.compress_arrays import holds_bound, make_array
from tnplan.cli.main import run
from tnplan.common.errors import InputError
from tnplan.common.files import write_file


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    np.save(tmp_path / "t.npy", make_array("mirrored", 5000, "complex64", 1).reshape(50, 100))
    return tmp_path / "t.npy"


def test_there_and_back(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = saved.read_bytes()
    packed = saved.with_name("t.npy.tnz")
    back = saved.with_name("back.npy")
    assert run(["compress", str(saved), "--bound", "5e-3"]) == 0
    assert "mirror image left out; range bound 0.005" in capsys.readouterr().out
    assert run(["decompress", str(packed), "-o", str(back)]) == 0
    assert str(back) in capsys.readouterr().out
    assert saved.read_bytes() == before
    holds_bound(np.load(saved), np.load(back), 5e-3, "range")
    with pytest.raises(InputError, match="is an input and would be replaced"):
        tnplan.decompress_file(packed, packed)
    assert "t.npy: already exists; name the output with -o" in refused(["decompress", str(packed)], capsys)
    assert saved.read_bytes() == before
    saved.unlink()
    assert run(["decompress", str(packed)]) == 0
    assert saved.read_bytes() == back.read_bytes()


@pytest.mark.parametrize("setting", ["fast", "small", "auto"])
@pytest.mark.parametrize("mode", ["range", "absolute", "pointwise"])
def test_options_reach_the_codec(
    saved: Path, capsys: pytest.CaptureFixture[str], setting: str, mode: str
) -> None:
    out = saved.with_name("out.tnz")
    arguments = ["compress", str(saved), "--setting", setting, "--mode", mode, "-o", str(out), "--json"]
    assert run(arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["mode"] == mode
    assert report["coder"] == setting or setting == "auto"
    assert report["stream_bytes"] == out.stat().st_size
    assert report["shape"] == [50, 100]
    holds_bound(
        np.load(saved), np.load(tnplan.decompress_file(out, out.with_suffix(".npy"))["output"]), 1e-3, mode
    )


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line with which a command line is refused."""
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_what_is_no_plain_file_is_not_replaced(
    tmp_path: Path, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = str(tnplan.compress_file(saved)["output"])
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    link = tmp_path / "link"
    link.symlink_to(pipe)
    for arguments in (
        ["compress", str(saved), "-o", str(pipe)], ["compress", str(saved), "-o", str(link)],
        ["decompress", packed, "-o", str(pipe)],
    ):  # fmt: skip
        assert "is a device or a pipe, which a file would replace; give" in refused(arguments, capsys)
    assert pipe.is_fifo()
    for name in ("", "a\0b"):
        with pytest.raises(InputError, match=r"^file '.*': is not the name of a file"):
            tnplan.compress_file(saved, name)
        with pytest.raises(InputError, match=r"^file '.*': is not the name of a file"):
            tnplan.decompress_file(packed, name)


def test_a_short_write_says_why(tmp_path: Path) -> None:
    def short(stream: object) -> None:
        raise OSError("40 requested and 8 written")

    with pytest.raises(InputError, match=r"x: cannot be written \(40 requested and 8 written\); free space"):
        write_file(tmp_path / "x", short)
    assert not list(tmp_path.iterdir())
