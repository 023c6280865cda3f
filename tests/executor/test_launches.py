"""Every kernel of the executor is launched with what it takes, on a GPU that does nothing.

A launch has as many arguments as its kernel, of the same sizes and kinds (tests/support/kernels/idle_gpu.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from math import inf, prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.circuits import random_circuit
from tests.support.contraction.fused import fusing_profile
from tests.support.engines.pauli import chain_edges, kicked_ising
from tests.support.engines.sbd import random_integrals, some_strings, string_set
from tests.support.engines.sbd_lists import as_list, random_list
from tests.support.engines.sbd_qubits import as_text, bits_of, random_terms, walk
from tests.support.engines.symmetric_molecules import symmetric_molecule
from tests.support.kernels.contract import shape_of
from tests.support.kernels.gpus import count_gpus
from tests.support.networks import window
from tests.support.root import ROOT
from tnplan.executor.contraction.run.compiled_program import CompiledProgram
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.protocols.copy import make_copy
from tnplan.executor.device.protocols.device import AdjointShape, RowShape
from tnplan.executor.statevector.scheduling.qubit_cover import ExchangePartners
from tnplan.jobs.calibration import chain_shape
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.passes.reverse import reverse
from tnplan.planner.schedule.schedule import FusedAdjoint

pytestmark = [
    pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy, which brings the compiler"),
    pytest.mark.skipif(count_gpus() > 0, reason="kernels themselves are launched where there is a GPU"),
]
FOLDER = (ROOT / "tnplan" / "executor").resolve()
DTYPES = ("float32", "float64", "complex64", "complex128")


def views(dtype: str, *counts: int) -> list[Any]:
    """A device, and arrays in its arena, each from a multiple of 256 bytes on."""
    from tnplan.executor.device.cuda.device import CupyDevice

    device, itemsize = CupyDevice(0), np.dtype(dtype).itemsize
    starts = np.cumsum([0, *(-(-count * itemsize // 256) * 256 for count in counts)])
    device.allocate(int(starts[-1]))
    return [device, *(device.view(int(at), n, dtype) for at, n in zip(starts, counts, strict=False))]


def copies(dtype: str) -> None:
    device, target, source = views(dtype, 4096, 8192)
    for copy, add in product(([(64, 64, 1), (64, 1, 64)], [(40, 100, 64), (64, 1, 1)]), (False, True)):
        device.bind_copy(target, source, make_copy(copy), add=add)()
    device.bind_accumulate(target, source[:4096])()
    device.bind_add_block(target, source[:99], lambda: 1)()
    for kept, count in (((True, False, True), 256), ((False, True, False), 16), ((False,) * 3, 1)):
        device.bind_sum(target[:count], source[:4096], (16,) * 3, kept)()
    block = device.input_block([5] * 8, dtype)
    for number in range(8):
        block.set(number, source.data.ptr)
    block.send()


def exponents(dtype: str) -> None:
    for count in (100, 1 << 15):
        device, target, source = views(dtype, count, count)
        made = device.exponents(4, dtype)
        made.bind_normalize([target, source], [0, 1])()
        made.bind_normalize([target], [0], 12)()
        made.bind_accumulate(target, source, 2, [0, 1])()
        made.bind_aligned(target, source, 2, [0, 1], lambda: None)()


def products(dtype: str) -> None:
    shapes = [
        shape_of((), (1024,), (8,), 8, (1, 0)), shape_of((3, 2), (2,), (5,), 1 << 13, (0, 1, 3, 2)),
        shape_of((), (4,), (4,), 1 << 13, (0, 1)), shape_of((50,), (2,), (2,), 2, (0, 1, 2)),
        shape_of((3,), (70,), (70,), 33, (0, 2, 1)), shape_of((), (512,), (520,), 2048, (1, 0)),
        shape_of((), (8, 16), (16, 8), 128, (2, 0, 3, 1)), shape_of((), (1 << 14,), (64,), 64, (0, 1)),
    ]  # fmt: skip
    shapes += [replace(shape, k_first=names) for shape, names in product(shapes[:3], ("a", "ab"))]
    for shape, precision in product(shapes, ("fp32", "fp16x3") if dtype in DTYPES[::2] else ("fp64",)):
        n_batch, m, n, k = shape.sizes
        device, a, b, c, workspace = views(dtype, n_batch * m * k, n_batch * n * k, n_batch * m * n, 1 << 12)
        device.bind_contract(shape, a, b, c, workspace, precision)()
    # Pairs of rows by tiles, and each sum by itself.
    for (m, n, k), counts in (((16, 1, 70), (5, 40)), ((1, 1, 4), (50, 60))):
        pairs = np.stack(np.divmod(np.arange(100, dtype=np.int32), counts[1]), axis=1)
        each = shape_of((1,), (m,), (n,), k, (0, 1, 2))
        device, a, b, c, workspace = views(dtype, counts[0] * m * k, counts[1] * n * k, 100 * m * n, 1 << 12)
        device.bind_rows(RowShape(each, len(pairs), m * n), pairs, a, b, c, workspace)()


def chains(dtype: str) -> None:
    chain, capacity_bytes = chain_shape(13, (2, 5, 2)), 32768
    sizes = [prod(extent for _, extent in modes) for modes in (chain.operand, chain.out, *chain.branches)]
    device, operand, out, *others = views(dtype, *sizes, *sizes[2:], sizes[0])
    branches, gradients, back = others[:3], others[3:6], others[6]
    for adds, closes, precision in ((False, False, "fp16x3"), (True, False, "fp32"), (False, True, "fp32")):
        shape = replace(chain, adds=adds, closes=closes)
        device.prepare_fused([(shape, precision)], dtype, capacity_bytes)
        into, closing = (out[:1], out) if closes else (out, None)
        device.bind_fused(shape, operand, branches, into, capacity_bytes, precision, closing)()
    for some, goes_back in ((True, True), (True, False), (False, True)):
        made = gradients if some else [None] * 3
        modes = tuple(chain.branches) if some else (None,) * 3
        way = AdjointShape(chain, modes, chain.operand if goes_back else None)
        device.prepare_adjoints([way], dtype, capacity_bytes)
        into = back if goes_back else None
        device.bind_adjoint(way, operand, branches, out, [*made, into], capacity_bytes)()


def pauli_words(dtype: str) -> None:
    from tnplan.circuits.pauli_sum import parse
    from tnplan.executor.pauli.algebra.gates import circuit_steps, depolarizing
    from tnplan.executor.pauli.cuda import table as table_module
    from tnplan.executor.pauli.cuda.taped_terms import GpuTapedTerms, TapedTurn
    from tnplan.executor.pauli.cuda.terms import GpuTerms
    from tnplan.executor.pauli.propagate import propagate
    from tnplan.executor.pauli.resources import Resources
    from tnplan.executor.pauli.terms.truncation import TermLimits, Truncation

    use = Resources(device="gpu", precision="fp32" if dtype == "float32" else "fp64")
    for n in (20, 100):
        steps = [*kicked_ising(n, chain_edges(n), 0.7, 2), depolarizing((2, 3), 0.1)]
        steps += circuit_steps(random_circuit(4, 10, 1))
        start = use.converted(parse("Z1 + 0.5*X3 - Y4 Z5", n))
        limits = Truncation(1e-3, 1e-3, max_weight=5, max_frequency=30)
        propagate(steps, start, limits, use, keep_cliffords=True)
        terms, word = GpuTerms(start), start.keys[0]
        table = terms.table
        for lists in (table.split(word, 0.8, 0.6, 0.0, 1), table.row_lists(2)):
            table.merge_rows(lists, 2)
        table.join(3, table.row_lists(2), table.leave(3, start.keys[:1], 0, 2)[1][0])
        table.choose_form(table_module.BY_PASSES_BELOW + 1)
        terms.rotate(word, 0.8, 0.6, 0.0)
        table.close_gaps(3)
        table.hash_rows(table_module.cupy.empty(3, np.uint64))
        terms.count(word)
        taped = GpuTapedTerms(start)
        taped.rotate(word, 0.8, 0.6, 0.0)
        taped.clifford(())
        taped.sweep(TermLimits(0.1, 3, 3, 3, True))
        taped.tape += [TapedTurn(taped.store.take(1), 0.8, 0.6)]
        taped._close_gaps()
        taped.weigh(None)
        taped.back()


def products_of_bases(dtype: str) -> None:
    from tnplan.executor.sbd.basis.sector import Sector, string_irreps
    from tnplan.executor.sbd.cuda.steps import CupyBatch
    from tnplan.executor.sbd.sigma.batched import BatchedHamiltonian, BatchedSector
    from tnplan.executor.sbd.sigma.product_hamiltonian import ProductHamiltonian, ProductTables
    from tnplan.executor.sbd.sigma.sector_hamiltonian import SectorHamiltonian

    integrals = random_integrals(7, 3, 3, seed=4)
    sets = [string_set(some_strings(7, 3, count, 9), integrals) for count in (29, 31)]
    for dense in (False, True):
        steps = CupyBatch(dtype)
        rows = BatchedHamiltonian(ProductHamiltonian(integrals, *sets, dense=dense, threads=1), steps)
        x, y = (steps.put(np.zeros((29, 31), dtype)) for _ in range(2))
        block = rows.block(0, 29)
        tasks = block.tasks[0], *(steps.put(np.array(one)) for one in ([0], [0, 1]))
        rows.add_rows(replace(block, tasks=tasks), x, x, y, False)
        rows.add_exchange(block, 0.5, x, y)
    molecule = symmetric_molecule("C2v", 7, (3, 3), 4)
    strings = string_set(some_strings(7, 3, 29, 9), molecule)
    irreps = string_irreps(strings, molecule.labels.irreps)
    sector = SectorHamiltonian(ProductTables(molecule, strings, threads=1), Sector(irreps, irreps, 0))
    operator = BatchedSector(sector, CupyBatch(dtype))
    x = operator.put(np.zeros(sector.shape, dtype))
    for parity in (0, 1, -1):
        operator.apply(operator.project(x, parity), parity)
    operator.apply_spin_square(x)


def lists_of_bases(dtype: str) -> None:
    from tnplan.circuits.pauli_sum import parse
    from tnplan.executor.sbd.cuda.coupling_steps import GpuCouplings
    from tnplan.executor.sbd.cuda.list_steps import CupyList
    from tnplan.executor.sbd.cuda.qubit_steps import GpuQubits
    from tnplan.executor.sbd.lists.batched_list import BatchedList
    from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian
    from tnplan.executor.sbd.lists.qubit_hamiltonian import QubitHamiltonian, pauli_terms, words_of
    from tnplan.executor.sbd.selected_ci.connections import member_keys
    from tnplan.executor.sbd.selected_ci.excitation_tables import excitation_tables

    integrals, determinants = random_list(6, (3, 2), (20, 6), 70)
    listed = ListHamiltonian(integrals, as_list(determinants, 6), memory_bytes=0)
    for rows in (BatchedList(listed, CupyList(6)), BatchedList(listed, CupyList(40))):
        x, y = (rows.put(np.zeros(70)) for _ in range(2))
        rows.add_rows(None, x, x, y, False)
        rows.add_exchange(None, 0.5, x, y)
        assert rows.pairs_contributing
    tables, keys = excitation_tables(integrals, 0.0, 1e9), member_keys(listed.basis)
    couplings, weights = GpuCouplings(keys, tables, 1e7), np.ones(70)
    assert couplings.largest(weights, weights, (0, 0)) is not None
    assert couplings.correction(keys[:9], weights[:9], weights[:9], 0, -9.0, (1, 1)) == (0.0, 0)
    words = random_terms(8, 60, "real" if dtype == "float64" else "complex")
    terms = pauli_terms(parse(as_text(words), 8), "hamiltonian")
    strings = words_of(bits_of(walk(words, 133, 150), 8))
    for memory_bytes in (0.0, 1e9):
        made = GpuQubits(QubitHamiltonian(terms, strings, threads=1, memory_bytes=0), memory_bytes)
        x, y = (made.put(np.zeros(made.shape)) for _ in range(2))
        made.add_rows(None, x, x, y, False)


def states(dtype: str) -> None:
    import cupy

    from tnplan.executor.statevector.cuda import bit_swap, words
    from tnplan.executor.statevector.cuda.packed_state import CodedState
    from tnplan.executor.statevector.cuda.state import CupyState
    from tnplan.executor.statevector.prepared_program import prepare_program
    from tnplan.executor.statevector.simulator import Simulator

    (segment,) = prepare_program(random_circuit(12, 60, 7).gates)
    for programs_from in (None, 4):
        state = CupyState(12, dtype, programs_from=programs_from)
        Simulator(state, 12).apply(segment)
    twin = state.twin()
    for any_state in (CodedState(12, dtype, 8), CodedState(18, dtype, 16), state):
        if any_state is not state:
            (gates,) = prepare_program(random_circuit(any_state.n_bits, 60, 7).gates)
            Simulator(any_state, any_state.n_bits).apply(gates)
            any_state.errors.norm = 1.0  # no kernel has run
        any_state.sums(4)
        any_state.draw(4, np.zeros(3, np.int64), np.zeros(3))
        any_state.marginal(range(6))
        any_state.pauli(1, 2)
        any_state.take(np.arange(3))
    state.add_word(twin, 3, 5, 0.5j)
    state.between(twin, [(1, 2), (5, 0)])()
    words.join(CupyState(13, dtype).amplitudes, state.amplitudes, [(1, 2, 0.5)])
    swap = bit_swap.StateSwap.__new__(bit_swap.StateSwap)
    swap._local, swap._rank = state.amplitudes, 0
    memory: Any = SimpleNamespace(view=lambda *_: twin.amplitudes, copy_stream=cupy.cuda.Stream())
    swap._launch(memory, ExchangePartners((2, 5), 1, ((0, 1), (2, 3))), ((7,), 1), 99)()


def algebras(dtype: str) -> None:
    from tnplan.executor.device.cpu.algebra import NAMED, Boolean, Optima, Residues
    from tnplan.executor.device.cuda.algebra.device import AlgebraCupyDevice
    from tnplan.executor.device.cuda.algebra.grid_rows import GridRows

    by_dtype = {"float32": [Boolean()], "float64": [Residues(7), NAMED["min-plus"]], "complex128": [Optima()]}
    for algebra in by_dtype[dtype]:
        device = AlgebraCupyDevice(algebra, 0)
        device.allocate(1 << 23)
        target, source = device.view(0, 4096, dtype), device.view(1 << 20, 8192, dtype)
        device.zero(target)
        device.bind_copy(target, source, make_copy([(40, 100, 64), (64, 1, 1)]), add=True)()
        device.bind_accumulate(target, source[:4096])()
        device.bind_add_block(target, source[:99], lambda: 1)()
        for kept, count in (((True, False, True), 256), ((False,) * 3, 1)):
            device.bind_sum(target[:count], source[:4096], (16,) * 3, kept)()
        for shape in (
            shape_of((), (4,), (4,), 1 << 13, (0, 1)), shape_of((3,), (70,), (70,), 33, (0, 2, 1)),
            shape_of((), (8, 16), (16, 8), 128, (2, 0, 3, 1)), shape_of((), (64,), (64,), 2000, (0, 1)),
        ):  # fmt: skip
            n_batch, m, n, k = shape.sizes
            counts = (n_batch * m * k, n_batch * n * k, n_batch * m * n, 1 << 12)
            given = [device.view(number << 21, count, dtype) for number, count in enumerate(counts)]
            device.prepare_contract([(shape, "fp32", "gemm")], dtype)
            device.bind_contract(shape, *given)()
        block = device.input_block([5], dtype)
        block.set(0, np.zeros(5))
        block.send()
    for width in (4, 28):
        GridRows(width).residue(1, 7)


PARTS: list[tuple[Callable[[str], None], tuple[str, ...], str]] = [
    (copies, DTYPES, "device/cuda/copy/[acs]*.cu device/cuda/gather.cu"),
    (exponents, DTYPES, "device/cuda/copy/exponents.cu"),
    (products, DTYPES, "device/cuda/contract/kernels/*.cu"),
    (chains, DTYPES, "device/cuda/fused/*.cu"),
    (algebras, ("float32", "float64", "complex128"), "device/cuda/algebra/*.cu"),
    (pauli_words, DTYPES[:2], "pauli/cuda/kernels/*.cu"),
    (products_of_bases, DTYPES[:2], "sbd/cuda/excite*.cu"),
    (lists_of_bases, DTYPES[1::2], "sbd/cuda/*_rows.cu sbd/cuda/couplings.cu"),
    (states, DTYPES[2:], "statevector/cuda/kernels/*.cu"),
]
"""What launches kernels, of what types, and the files of the kernels."""


def files_of(patterns: str) -> set[Path]:
    return {path for pattern in patterns.split() for path in FOLDER.glob(pattern)}


@pytest.mark.parametrize(("part", "dtypes", "patterns"), PARTS, ids=[part.__name__ for part, *_ in PARTS])
def test_kernels_are_launched_with_what_they_take(
    part: Callable[[str], None], dtypes: tuple[str, ...], patterns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support.kernels.idle_gpu import KERNEL, launched, put_in_place

    put_in_place(monkeypatch)
    for dtype in dtypes:
        part(dtype)
    wanted = {(path, entry) for path in files_of(patterns) for entry, _ in KERNEL.findall(path.read_text())}
    assert wanted - launched == set()


def test_gradients_of_chains_are_bound_run_and_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.kernels.idle_gpu import put_in_place
    from tnplan.executor.device.cuda.device import CupyDevice

    put_in_place(monkeypatch)
    path = replace(window(16, 12), dtype="complex64")
    forward = plan(path, fusing_profile(1 << 15), memory_bytes=inf, goes_back=True)
    schedule = reverse(forward, range(len(path.network.inputs)))
    assert any(isinstance(item, FusedAdjoint) for item in schedule.instructions)
    program = CompiledProgram(schedule, CupyDevice(0), run_ranks(1, lambda own: own)[0])
    for _ in range(3):
        program.run()
    assert [len(gradient) for gradient in program.results[1:]] == [
        prod(path.network.size_dict[index] for index in term) for term in path.network.inputs
    ]


def test_no_kernel_is_left_out() -> None:
    assert set(FOLDER.rglob("*.cu")) == {path for *_, patterns in PARTS for path in files_of(patterns)}
