"""Numbers below the normal range are 0 while object code runs, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from tests.support.kernels.control_register import control_register, flushed, n_subnormal
from tnplan.common.kernels.kernel import Kernel, kernel
from tnplan.common.kernels.vector_operations import flush_subnormals

jit = kernel(nogil=True, error_model="numpy")


@jit
def multiply(a: Any, b: Any, out: Any) -> None:
    for k in range(out.size):
        out[k] = a[k] * b[k]


@jit
def copy_and_fail(a: Any, out: Any, divisor: int) -> None:
    for k in range(out.size):
        out[k] = a[k]
    if divisor == 0:
        raise ZeroDivisionError


def factors(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of numbers of both signs: their products are normal or not, and so are they."""
    draw, kind = np.random.default_rng(3), np.finfo(dtype)
    powers = draw.integers(2 * kind.minexp // 3, 0, (2, 4000))
    # Every third operand is subnormal, half of these with a normal product; another third has a subnormal
    # product of normal operands.
    powers[0, ::3] = draw.integers(kind.minexp - kind.nmant, kind.minexp, powers[0, ::3].size)
    powers[1, ::6] = draw.integers(kind.nmant + 1, kind.maxexp - 1, powers[1, ::6].size)
    powers[1, 1::3] = draw.integers(kind.minexp - kind.nmant, kind.minexp - 1, powers[1, 1::3].size)
    powers[1, 1::3] -= powers[0, 1::3]
    signed = draw.uniform(1, 2, powers.shape) * draw.choice([-1, 1], powers.shape)
    a, b = np.ldexp(signed, powers).astype(dtype)
    return a, b


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_subnormal_operands_and_results_are_0(dtype: str) -> None:
    control_register()
    a, b = factors(dtype)
    plain = a * b
    assert min(n_subnormal(a), n_subnormal(plain), np.count_nonzero(plain == flushed(plain))) > 1000
    assert np.count_nonzero((flushed(a) == 0) & (flushed(plain) != 0)) > 500
    out = np.empty_like(a)
    for call in (lambda: multiply(a, b, out), multiply.bound(a, b, out)):
        out.fill(1)
        call()
        wanted = flushed(flushed(a) * flushed(b))
        np.testing.assert_array_equal(out, wanted)
        np.testing.assert_array_equal(np.signbit(out), np.signbit(wanted))
        np.testing.assert_array_equal(a * b, plain)


def calls() -> list[Callable[[], None]]:
    a, b = factors("float32")
    out = np.empty_like(a)
    return [lambda: multiply(a, b, out), multiply.bound(a, b, out), lambda: copy_and_fail(a, out, 1)]


def test_every_thread_has_its_register_back() -> None:
    barrier = Barrier(3)

    def registers(_: int) -> list[int]:
        barrier.wait(60)
        found = [control_register()]
        for call in calls():
            call()
            found.append(control_register())
        return found

    before = control_register()
    with ThreadPoolExecutor(3) as pool:
        assert {register for one in pool.map(registers, range(3)) for register in one} == {before}
    assert registers_after(calls()) == {before}


def registers_after(several: list[Callable[[], None]]) -> set[int]:
    found = set()
    for call in several:
        call()
        found.add(control_register())
    return found


def test_a_kernel_that_fails_gives_the_register_back_and_copies_keep_subnormal_numbers() -> None:
    a, _ = factors("float32")
    out, before = np.empty_like(a), control_register()
    with pytest.raises(RuntimeError, match="copy_and_fail ended with status"):
        copy_and_fail(a, out, 0)
    assert control_register() == before
    np.testing.assert_array_equal(out, a)


def test_what_is_left_to_numba_computes_with_subnormal_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_BOUNDSCHECK", "1")
    a, b = factors("float32")
    out = np.empty_like(a)
    Kernel(multiply.function, multiply.options).dispatcher(a, b, out)
    np.testing.assert_array_equal(out, a * b)


INSTRUCTIONS = {
    "x86_64-unknown-linux-gnu": ("stmxcsr", "orl\t$32832", "ldmxcsr", "callq\t", "ldmxcsr"),
    "aarch64-unknown-linux-gnu": ("FPCR", "#0x1000000", "msr\tFPCR", "bl\tinner", "msr\tFPCR"),
    "powerpc64le-unknown-linux-gnu": ("bl inner",),
}
"""What a call becomes, in turn."""


@pytest.mark.parametrize("triple", INSTRUCTIONS)
def test_every_processor_has_code_of_its_own(triple: str) -> None:
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        machine = llvm.Target.from_triple(triple).create_target_machine()
    except RuntimeError as error:
        pytest.skip(f"this LLVM makes no code for {triple}: {error}")
    flush = flush_subnormals(triple)
    module = llvm.parse_assembly("\n".join([
        *flush.declarations, "declare i32 @inner()", "define i32 @outer() {", *flush.before,
        "%status = call i32 @inner()", *flush.behind, "ret i32 %status", "}",
    ]))  # fmt: skip
    module.verify()
    text, start = machine.emit_assembly(module), 0
    for instruction in INSTRUCTIONS[triple]:
        assert instruction in text[start:], (instruction, text)
        start = text.index(instruction, start) + len(instruction)
