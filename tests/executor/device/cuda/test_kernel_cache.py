"""Kernels compiled once and kept: keys, refusals, several processes that write one kernel."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from tests.support.kernels.gpus import needs_gpus
from tests.support.platforms import ARCHITECTURES
from tests.support.robustness.damages import DAMAGES
from tests.support.root import ROOT
from tests.support.slow import slow_after
from tnplan.common.cache_folder import CACHE_VARIABLE, read_entry
from tnplan.common.errors import InputError

CUDA = ROOT / "tnplan" / "executor" / "device" / "cuda"
ADD_FILE, SUM_FILE = CUDA / "copy" / "add.cu", CUDA / "copy" / "sum.cu"
ELF = b"\x7fELF"

pytestmark = pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy, which brings the compiler")


def test_what_does_not_compile_comes_with_the_log() -> None:
    from tnplan.executor.device.cuda.runtime.kernel_cache import compile_cubin

    with pytest.raises(ValueError, match=r"(?s)add\.cu does not compile for sm_90: .*quad"):
        compile_cubin(ADD_FILE, {"REAL": "quad", "WIDTH": 1}, "sm_90")


def test_gpus_newer_than_the_compiler_get_ptx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretends that the compiler ends with an architecture that it has passed; the driver takes PTX."""
    from tnplan.executor.device.cuda.runtime import kernel_cache

    known = (80, 86, 90)
    monkeypatch.setattr(kernel_cache.nvrtc, "getSupportedArchs", lambda: known)
    ptx = kernel_cache.compile_cubin(ADD_FILE, dict(ADD), "sm_130")
    assert b".target sm_90\n" in ptx
    assert b".entry" in ptx
    asked = ("sm_80", "sm_90", "sm_90a", "sm_87", "sm_75", "sm_100", "sm_100a")
    given = [kernel_cache.compiler_target(arch, known) for arch in asked]
    assert given == ["sm_80", "sm_90", "sm_90a", "sm_87", "sm_75", "compute_90", "sm_100a"]


@needs_gpus(1)
def test_the_driver_compiles_ptx(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A sum by a kernel compiled for an older GPU than this one, as on a GPU newer than the compiler."""
    import cupy

    from tnplan.executor.device.cuda.runtime import kernel_cache

    monkeypatch.setattr(kernel_cache.nvrtc, "getSupportedArchs", lambda: (75,))
    defines = {"REAL": "float", "WIDTH": 2}
    kernel = kernel_cache.load_kernel(ADD_FILE, "add", defines)
    assert b".target sm_75" in b"".join(path.read_bytes() for path in folder.iterdir())
    target, source = cupy.arange(1000, dtype="float32"), cupy.ones(1000, "float32")
    kernel((1,), (256,), (target, source, np.int64(500)))
    np.testing.assert_array_equal(target.get(), np.arange(1000) + 1)


@pytest.mark.parametrize("arch", slow_after(1, ARCHITECTURES))
def test_quick_code_is_other_code(arch: str) -> None:
    """It is compiled without optimization; a compiler that cannot do so compiles as always."""
    from cupy_backends.cuda.libs import nvrtc

    from tnplan.executor.device.cuda.runtime.kernel_cache import QUICK, QUICK_SINCE, compile_cubin
    from tnplan.executor.statevector.cuda.kernel_defines import PASS_FILE, pass_defines

    defines = pass_defines("complex64", 6, 1)
    well, quick = (compile_cubin(PASS_FILE, one, arch) for one in (defines, {**defines, QUICK: 1}))
    assert well.startswith(ELF)
    assert quick.startswith(ELF)
    assert (well != quick) == (nvrtc.getVersion() >= QUICK_SINCE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from tnplan.executor.device.cuda.runtime import kernel_cache

    monkeypatch.delenv(kernel_cache.NEVER_COMPILE, raising=False)
    monkeypatch.setenv(kernel_cache.CACHE_FOLDER, str(tmp_path / "a" / "b"))
    return tmp_path / "a" / "b"


ADD = (("REAL", "float"), ("WIDTH", "4"))


def test_a_kernel_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tnplan.executor.device.cuda.runtime import kernel_cache
    from tnplan.executor.device.cuda.runtime.kernel_cache import cache_key

    cubin = kernel_cache.cached_cubin(ADD_FILE, ADD, "sm_90")
    assert cubin.startswith(ELF)
    assert [path.name for path in folder.iterdir()] == [f"{cache_key(ADD_FILE, ADD, 'sm_90')}.cubin"]
    monkeypatch.delattr(kernel_cache, "compile_cubin")
    monkeypatch.setenv(kernel_cache.NEVER_COMPILE, "1")
    assert kernel_cache.cached_cubin(ADD_FILE, ADD, "sm_90") == cubin


def test_keys_tell_kernels_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    from tnplan.executor.device.cuda.runtime import kernel_cache
    from tnplan.executor.device.cuda.runtime.kernel_cache import cache_key

    keys = [cache_key(ADD_FILE, ADD, arch) for arch in ARCHITECTURES]
    keys.append(cache_key(SUM_FILE, ADD, "sm_90"))
    keys.append(cache_key(ADD_FILE, (("REAL", "float"), ("WIDTH", "1")), "sm_90"))
    monkeypatch.setattr(kernel_cache, "source", lambda file: "another text")
    keys.append(cache_key(ADD_FILE, ADD, "sm_90"))
    monkeypatch.setattr(kernel_cache.nvrtc, "getVersion", lambda: (99, 0))
    keys.append(cache_key(ADD_FILE, ADD, "sm_90"))
    assert len(set(keys)) == len(keys)


def test_nothing_is_compiled_where_that_is_forbidden(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tnplan.executor.device.cuda.runtime import kernel_cache

    monkeypatch.setenv(kernel_cache.NEVER_COMPILE, "1")
    with pytest.raises(InputError, match=r"TNPLAN_NO_COMPILE: is set, and kernel add\.cu for sm_90"):
        kernel_cache.cached_cubin(ADD_FILE, ADD, "sm_90")
    assert not list(folder.iterdir())
    monkeypatch.setenv(kernel_cache.NEVER_COMPILE, "0")
    assert kernel_cache.cached_cubin(ADD_FILE, ADD, "sm_90").startswith(ELF)


@pytest.mark.parametrize("there_is", ["no folder", "no room"])
def test_what_cannot_be_kept_is_compiled_once_a_process(
    there_is: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tnplan.executor.device.cuda.runtime import kernel_cache

    compiled: list[Path] = []

    def note(file: Path, *_: object) -> bytes:
        compiled.append(file)
        return ELF

    monkeypatch.setattr(kernel_cache, "compile_cubin", note)
    monkeypatch.setattr(kernel_cache, "current_arch", lambda device=None: "sm_90")
    if there_is == "no folder":
        folder.parent.write_text("in the way")
        monkeypatch.setenv(CACHE_VARIABLE, "0")
    else:
        monkeypatch.setattr(kernel_cache, "write_entry", lambda *_: False)
    monkeypatch.setattr(kernel_cache, "not_kept", {})
    assert not kernel_cache.is_kept(ADD_FILE, dict(ADD))
    for _ in range(2):
        assert kernel_cache.cached_cubin(ADD_FILE, ADD, "sm_90") == ELF
    assert compiled == [ADD_FILE]
    assert kernel_cache.is_kept(ADD_FILE, dict(ADD))
    assert kernel_cache.compile_soon([(ADD_FILE, dict(ADD))]) == []


def test_damaged_kernels_and_those_of_others_are_compiled_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tnplan.executor.device.cuda.runtime import kernel_cache

    monkeypatch.setattr(kernel_cache, "compile_cubin", lambda *_: ELF + bytes(1000))
    kernel_cache.cached_cubin(ADD_FILE, ADD, "sm_90")
    for damage in DAMAGES.values():
        (file,) = folder.iterdir()
        damage(file)
        assert kernel_cache.cached_cubin(ADD_FILE, ADD, "sm_90") == ELF + bytes(1000)
        assert read_entry(folder, file.name) == ELF + bytes(1000)
    file.chmod(0o666)
    with pytest.warns(UserWarning, match="may be written by others"):
        assert kernel_cache.cached_cubin(ADD_FILE, ADD, "sm_90") == ELF + bytes(1000)
    assert read_entry(folder, file.name) == ELF + bytes(1000)


def test_kernels_of_chains_are_compiled_ahead(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tnplan.executor.device.cuda.fused import chain as cupy_fused
    from tnplan.executor.device.cuda.runtime import kernel_cache
    from tnplan.jobs.calibration import chain_shape

    monkeypatch.setattr(kernel_cache, "current_arch", lambda device=None: "sm_90")
    chains = [(chain_shape(14, logs), precision) for logs in ((2,), (4,)) for precision in ("fp32", "fp16x3")]
    with monkeypatch.context() as patch:
        patch.setenv(kernel_cache.NEVER_COMPILE, "1")
        with pytest.raises(InputError, match=r"kernel fused\.cu for sm_90 is not in"):
            cupy_fused.prepare_fused(chains, "complex64", 32768)
    cupy_fused.prepare_fused([*chains, chains[0]], "complex64", 32768)
    assert len(list(folder.iterdir())) == 4
    for shape, precision in chains:
        defines = cupy_fused.kernel_defines(
            "complex64", *cupy_fused.chosen(shape, "complex64", 32768, precision), adds=False
        )
        key = tuple(sorted((name, str(value)) for name, value in defines))
        assert (folder / f"{kernel_cache.cache_key(cupy_fused.FILE, key, 'sm_90')}.cubin").exists()
    monkeypatch.setenv(kernel_cache.NEVER_COMPILE, "1")
    cupy_fused.prepare_fused(chains, "complex64", 32768)


def test_many_may_write_one_kernel_at_once(folder: Path) -> None:
    from tnplan.executor.device.cuda.runtime import kernel_cache

    code = (
        "from tnplan.executor.device.cuda.runtime.kernel_cache import cached_cubin; "
        "from tnplan.executor.device.cuda.copy.permute import ADD_FILE; "
        f"print(cached_cubin(ADD_FILE, {ADD!r}, 'sm_90')[:4])"
    )

    def other() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False, timeout=120
        )

    with ThreadPoolExecutor(6) as pool:
        processes = [pool.submit(other) for _ in range(2)]
        threads = [pool.submit(kernel_cache.cached_cubin, ADD_FILE, ADD, "sm_90") for _ in range(4)]
    assert [entry.result().stdout.strip() for entry in processes] == [str(ELF)] * 2
    assert len({entry.result() for entry in threads}) == 1
    assert len(list(folder.iterdir())) == 1


def test_what_is_begun_is_not_compiled_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever needs a kernel that a thread compiles waits for it; a refusal is theirs too, and not kept."""
    from tnplan.executor.device.cuda.runtime import kernel_cache

    compiled, may_go_on = [], Event()

    def slow(file: Path, *rest: object) -> bytes:
        compiled.append(file)
        assert may_go_on.wait(60)
        if len(compiled) == 1:
            raise ValueError("does not compile")
        return ELF

    monkeypatch.setattr(kernel_cache, "compile_cubin", slow)
    monkeypatch.setattr(kernel_cache, "current_arch", lambda device=None: "sm_90")
    wanted = [(ADD_FILE, dict(ADD)), (ADD_FILE, dict(reversed(ADD)))]
    (begun,) = kernel_cache.compile_soon(wanted)
    assert kernel_cache.compile_soon(wanted) == [begun]
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(kernel_cache.cached_cubin, ADD_FILE, ADD, "sm_90")
        may_go_on.set()
        for one in (begun, other):
            with pytest.raises(ValueError, match="does not compile"):
                one.result()
    assert not kernel_cache.is_kept(ADD_FILE, dict(ADD))
    kernel_cache.compile_ahead(wanted)
    assert kernel_cache.is_kept(ADD_FILE, dict(ADD))
    assert len(compiled) == 2


def test_the_end_of_a_program_waits_for_no_kernel_that_has_not_begun(folder: Path) -> None:
    code = (
        "from time import sleep\n"
        "from tnplan.executor.device.cuda.runtime import kernel_cache\n"
        "from tnplan.executor.device.cuda.copy.permute import ADD_FILE\n"
        "kernel_cache.current_arch = lambda device=None: 'sm_90'\n"
        "kernel_cache.compile_cubin = lambda *_: sleep(0.1) or b'kernel'\n"
        "kernel_cache.compile_soon([(ADD_FILE, {'WIDTH': width}) for width in range(100)])[0].result()\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120)
    assert 0 < len(list(folder.iterdir())) < 50
