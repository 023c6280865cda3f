"""Arrays of anybody's files: what a header promises is checked before there is memory for it."""

from __future__ import annotations

import gc
import io
import time
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.support.robustness.mutations import npy
from tnplan.common.array_file import ArrayHeader, map_array, open_archive, read_array, read_header
from tnplan.common.errors import InputError

ARRAY = np.arange(24.0).reshape(4, 6)


@pytest.mark.parametrize(
    "array",
    [
        ARRAY, ARRAY.T, ARRAY[:, :0], np.float32(3.0), ARRAY.astype(">c16"), ARRAY.astype("<f2"),
        np.asfortranarray(ARRAY), np.array("text"),
    ],
)  # fmt: skip
def test_arrays_are_what_numpy_reads(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "a.npy", array)
    np.savez_compressed(tmp_path / "a.npz", a=array, b=ARRAY)
    with open_archive(tmp_path / "a.npz", "") as archive:
        assert archive.names == ["a", "b"]
        found = [read_array(tmp_path / "a.npy"), map_array(tmp_path / "a.npy"), archive.read("a")]
    for one in found:
        assert one.dtype == array.dtype
        np.testing.assert_array_equal(one, array)


def archive_of(content: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytearray:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        archive.writestr("a.npy", content)
    return bytearray(stream.getvalue())


def encrypted() -> bytearray:
    data = archive_of(npy(ARRAY))
    data[data.find(b"PK\x03\x04") + 6] |= 1
    data[data.find(b"PK\x01\x02") + 8] |= 1
    return data


def of_method(method: int) -> bytearray:
    data = archive_of(npy(ARRAY))
    data[data.find(b"PK\x03\x04") + 8] = method
    data[data.find(b"PK\x01\x02") + 10] = method
    return data


def headed(size: int, text: bytes = b" ") -> bytes:
    return b"\x93NUMPY\x02\x00" + size.to_bytes(4, "little") + text * (size // len(text))


BAD = {
    "compression method is not supported": of_method(99),
    "encrypted": encrypted(),
    "its header has": archive_of(headed(1 << 22)),
    "its header is damaged": archive_of(headed(4000, b"(")),
    "Object arrays": archive_of(
        b"\x93NUMPY\x01\x00\x3c\x00" + b"{'descr':'|O','fortran_order':False,'shape':(1,)}".ljust(60)),
    "its header says 192 bytes of values, 96 are there": archive_of(npy(ARRAY)[:-96]),
    "Bad CRC-32": archive_of(npy(ARRAY), zipfile.ZIP_STORED).replace(
        ARRAY.tobytes(), (2 * ARRAY).tobytes()),
}  # fmt: skip


@pytest.mark.parametrize("says", BAD)
def test_a_bad_member_is_refused_by_name(tmp_path: Path, says: str) -> None:
    (tmp_path / "a.npz").write_bytes(BAD[says])
    with pytest.raises(InputError, match=says) as error, open_archive(tmp_path / "a.npz", "") as archive:
        archive.read("a")
    assert error.value.place.endswith("a.npz: a")


def test_a_member_of_another_shape_takes_no_memory(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(1 << 25))

    def check(header: ArrayHeader) -> None:
        if header.shape != (2, 2):
            raise InputError("a", f"has shape {header.shape}", "")

    tracemalloc.start()
    with pytest.raises(InputError, match="33554432"), open_archive(tmp_path / "a.npz", "") as archive:
        archive.read("a", check)
    assert tracemalloc.get_traced_memory()[1] < 4e6
    tracemalloc.stop()


@pytest.mark.parametrize("character", [0x110000, 0xFFFFFFFF, 0xD800, 0xDFFF])
@pytest.mark.parametrize("order", ["<", ">"])
def test_text_that_is_no_unicode_is_refused(tmp_path: Path, character: int, order: str) -> None:
    numbers = np.array([ord("a"), character, 0xE000, 0x10FFFF], f"{order}u4")
    np.save(tmp_path / "a.npy", numbers.view(f"{order}U4"))
    with pytest.raises(InputError, match=r"a\.npy: cannot be read \(its text is not Unicode\)"):
        read_array(tmp_path / "a.npy")
    numbers[1] = ord("b")
    np.save(tmp_path / "a.npy", numbers.view(f"{order}U4"))
    assert read_array(tmp_path / "a.npy")[0] == "ab\ue000\U0010ffff"


def test_threads_read_headers_at_the_same_time() -> None:
    """Another thread may run while a syntax tree is made: a callback of the garbage collector lets it."""
    content = npy(np.zeros((1,) * 12))

    def let_others_run(phase: str, info: dict[str, int]) -> None:
        time.sleep(0)

    def read_headers(_: int) -> set[tuple[int, ...]]:
        return {read_header(io.BytesIO(content), "a.npy").shape for _ in range(100)}

    threshold = gc.get_threshold()
    gc.callbacks.append(let_others_run)
    gc.set_threshold(20)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert set().union(*pool.map(read_headers, range(16))) == {(1,) * 12}
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(let_others_run)
