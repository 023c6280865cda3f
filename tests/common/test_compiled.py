"""Kernels as object code: values of Python, what is left to numba, caches, processes beside this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.support.root import ROOT
from tnplan.common.kernels import ahead, object_cache
from tnplan.common.kernels.ahead import Sample, Samples, compile_soon, is_compiled
from tnplan.common.kernels.kernel import Kernel, argument_types, kernel
from tnplan.executor.device.cpu.bits_kernel import count_bits

SCALE = 3
jit = kernel(nogil=True, error_model="numpy")


class Pair(NamedTuple):
    numbers: np.ndarray
    factor: float


@jit
def added(numbers: Any, first: int) -> int:
    total = first
    for number in numbers:
        total += SCALE * number
    return total


@jit
def mixed(pair: Any, table: Any, flag: bool, mask: Any) -> Any:
    sum_of_row = 0.0
    for k in range(table.shape[1]):
        sum_of_row += table[1, k] * pair.factor
    return added(pair.numbers, 1), sum_of_row, count_bits(mask) if flag else -1


@jit
def fill(out: Any, value: float) -> None:
    for k in range(out.size):
        out[k] = value * k


@jit
def allocates(n: int) -> float:
    return np.arange(n).sum() + 0.5


@jit
def wrong(n: int) -> Any:
    return n.no_such_name


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Caches of the test's own, and no code loaded before."""
    monkeypatch.setenv("TNPLAN_CACHE_DIR", str(tmp_path))
    for value in globals().values():
        if isinstance(value, Kernel):
            value.loaded.clear()
    return tmp_path / "cpu-kernels"


def samples() -> list[Sample]:
    return [(added, (np.zeros(1, np.int64), 0))]


def samples_of_fill() -> list[Sample]:
    return [(fill, (np.zeros(1), 0.0))]


def samples_for(cores: str, name: str) -> list[Sample]:
    return samples()


def test_kernels_give_what_python_gives(folder: Path) -> None:
    numbers = np.arange(5)
    assert added(numbers, 2) == 32
    assert added(numbers[::2], np.int64(2)) == 20
    for table in (np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3))):
        found = mixed(Pair(numbers, 0.5), table, True, np.uint64(0b1011))
        assert found == (31, 6.0, 3)
        assert [type(value) for value in found] == [int, float, int]
    assert mixed(Pair(numbers, 0.5), table, False, np.uint64(1)) == (31, 6.0, -1)
    out = np.zeros(4, np.float32)
    assert fill(out, 0.25) is None
    np.testing.assert_array_equal(out, np.float32([0, 0.25, 0.5, 0.75]))
    assert len(list(folder.iterdir())) == 5


@jit
def put(out: Any, at: int, small: Any, count: Any, value: Any, twice: bool) -> None:
    out[at] = small + count + value * (2 if twice else 1)


NUMBERS = np.int32(-7), np.uint32(2**32 - 1), np.float32(0.5)


@pytest.mark.parametrize("is_left", [False, True])
def test_bound_calls_take_the_arguments_that_they_were_made_with(
    folder: Path, monkeypatch: pytest.MonkeyPatch, is_left: bool
) -> None:
    if is_left:
        monkeypatch.setenv("NUMBA_BOUNDSCHECK", "1")
    out = np.zeros(3)
    put.bound(out, 1, *NUMBERS, True)()
    put.bound(out, 2, *NUMBERS, False)()
    np.testing.assert_array_equal(out, [0, 2**32 - 7, 2**32 - 7.5])
    call = put.bound(out, ..., *NUMBERS, True)
    out[:] = 0
    for at in (2, 0):
        assert call(at) is None
    np.testing.assert_array_equal(out, [2**32 - 7, 0, 2**32 - 7])
    assert bool(list(folder.iterdir()) if folder.exists() else []) != is_left


def test_a_bound_call_keeps_its_arrays(folder: Path) -> None:
    call = fill.bound(np.zeros(1 << 20), 1.0)
    others = [np.ones(1 << 20) for _ in range(4)]
    call()
    assert all(other.min() == 1 for other in others)


def test_kernels_that_allocate_are_left_to_numba(folder: Path) -> None:
    assert allocates(4) == 6.5
    (file,) = folder.iterdir()
    made = object_cache.find_object(allocates, argument_types(4))
    assert file.exists()
    assert made is not None
    assert not made.is_native


def test_threads_that_call_what_is_left_to_numba_at_once_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_BOUNDSCHECK", "1")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "made_slowly.py").write_text(
        "import time\n"
        "from tnplan.common.kernels.kernel import Late, kernel\n"
        "slow = Late(lambda: time.sleep(0.3) or 2)\n"
        "@kernel()\n"
        "def doubled(n): return slow * n\n"
    )
    doubled = import_module("made_slowly").doubled
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(doubled, range(4))) == [0, 2, 4, 6]


def test_what_numba_refuses_says_so() -> None:
    with pytest.raises(Exception, match="no_such_name"):
        wrong(1)


def test_a_damaged_object_is_made_anew(folder: Path) -> None:
    assert added(np.arange(3), 0) == 9
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    for damaged in (whole[:-10], whole[:40], b"", whole.replace(b"\x00", b"\x01")):
        file.write_bytes(damaged)
        added.loaded.clear()
        assert not is_compiled(added, (np.arange(3), 0))
        assert added(np.arange(3), 0) == 9
        assert is_compiled(added, (np.arange(3), 0))


def test_an_object_depends_on_the_code_and_values_that_it_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, table = Pair(np.arange(2), 1.0), np.ones((2, 2))
    arguments = argument_types(pair, table, True, np.uint64(1))
    keys = {object_cache.object_key(mixed, arguments)}
    monkeypatch.setitem(globals(), "SCALE", 4)
    keys.add(object_cache.object_key(mixed, arguments))
    monkeypatch.setitem(globals(), "added", fill)
    keys.add(object_cache.object_key(mixed, arguments))
    keys.add(object_cache.object_key(mixed, argument_types(pair, table.astype("f4"), True, np.uint64(1))))
    assert len(keys) == 4


ALL_KEYS = """
import json, pkgutil, importlib, tnplan
from tnplan.common.kernels.kernel import Kernel
from tnplan.common.kernels.object_cache import object_key
keys = {}
for part in ("planner", "executor", "compress"):
    package = importlib.import_module(f"tnplan.{part}")
    for found in pkgutil.walk_packages(package.__path__, f"tnplan.{part}."):
        if found.name.endswith("kernel"):
            module = importlib.import_module(found.name)
            for name, value in vars(module).items():
                if isinstance(value, Kernel):
                    keys[f"{found.name}.{name}"] = object_key(value, ())
print(json.dumps(keys))
"""


def test_every_process_has_the_same_keys() -> None:
    found = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", ALL_KEYS], capture_output=True, text=True, check=True,
                env={**os.environ, "PYTHONHASHSEED": seed},
            ).stdout
        )
        for seed in ("1", "2")
    ]  # fmt: skip
    assert len(found[0]) > 50
    assert [name for name in found[0] if found[0][name] != found[1][name]] == []


def test_a_process_beside_this_one_compiles(folder: Path) -> None:
    one = Samples(__name__, "samples")
    compile_soon([one])
    assert added(np.arange(3), 1) == 10
    assert is_compiled(*samples()[0])
    assert "added" in object_cache.find_object(added, argument_types(np.arange(3), 1)).name  # type: ignore[union-attr]


@pytest.mark.parametrize(("cores", "shares"), [(1, [3]), (2, [1, 2]), (8, [1, 1, 1])])
def test_processes_are_no_more_than_cores(
    cores: int, shares: list[int], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[str, ...]] = []
    monkeypatch.setattr(ahead, "cores", lambda: cores)

    def python(module: str, *words: str) -> subprocess.Popen[bytes]:
        begun.append(words)
        return subprocess.Popen(["true"])

    monkeypatch.setattr(ahead, "python", python)
    several = [Samples(__name__, "samples_for", (f"{cores}", name)) for name in "abc"]
    compile_soon([*several, several[0]])
    compile_soon(several)  # which have begun
    assert [len(words) for words in begun] == shares
    assert [word for words in begun for word in words] == [
        f"{__name__} samples_for {cores} {name}" for name in "abc"
    ]


def test_one_process_compiles_for_several(folder: Path) -> None:
    words = [Samples(__name__, name).words for name in ("samples", "samples_of_fill")]
    process = ahead.python("tnplan.common.kernels.worker", *words)
    assert process.wait() == 0
    assert is_compiled(*samples()[0])
    assert is_compiled(*samples_of_fill()[0])


BY_NUMBA = """
import numpy as np
from tests.common.test_compiled import added
print(added(np.arange(3), 0), list(added.loaded.values()))
"""


@pytest.mark.parametrize("variable", ["NUMBA_BOUNDSCHECK", "NUMBA_DISABLE_JIT"])
def test_variables_that_find_faults_leave_kernels_to_numba(variable: str, tmp_path: Path) -> None:
    """In a process of its own: numba remembers the variables after they are gone."""
    said = subprocess.run(
        [sys.executable, "-c", BY_NUMBA], cwd=ROOT, capture_output=True, text=True, check=True,
        env={**os.environ, "TNPLAN_CACHE_DIR": str(tmp_path), variable: "1"},
    ).stdout.strip()  # fmt: skip
    assert said == "9 [None]"
    assert not list(tmp_path.rglob("*.o"))


TWICE = """
import sys, numpy as np
from tests.common.test_compiled import added
print(added(np.arange(4), 1), "numba" in sys.modules)
"""


def test_numba_is_not_loaded_for_what_is_in_the_cache(tmp_path: Path) -> None:
    said = [
        subprocess.run(
            [sys.executable, "-c", TWICE], cwd=ROOT, capture_output=True, text=True, check=True,
            env={**os.environ, "TNPLAN_CACHE_DIR": str(tmp_path)},
        ).stdout.split()
        for _ in range(2)
    ]  # fmt: skip
    assert said == [["19", "True"], ["19", "False"]]


def test_without_a_place_for_caches_kernels_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TNPLAN_CACHE_DIR", "0")
    assert object_cache.objects_folder() is None
    assert added(np.arange(3), 2) == 11
