"""`contract` and `compile`: the contraction of an einsum equation, a network, a path or a schedule.

This module has only the calls. What they do is imported while a GPU begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import tnplan
from tnplan.common.errors import InputError
from tnplan.executor.device.expected_gpu import expect_gpu

TOPIC = "contractions in Python"

Call = TypeVar("Call", bound=Callable[..., Any])


def _quick(contract: Call) -> Call:
    """`contract` that looks an equation without options up at once: eleven keywords take as long as a small
    product."""

    @wraps(contract)
    def call(network: Any, *arrays: Any, **options: Any) -> Any:
        if options or not _loaded or type(network) is not str:
            return contract(network, *arrays, **options)
        return _loaded[0](network, arrays)

    return cast(Call, call)


@_quick
def contract(
    network: Any,
    *arrays: Any,
    out: Any = None,
    optimize: Any = "auto",
    hardware: tnplan.Profile | str | Path | None = None,
    memory: float | str | None = None,
    precision: str | None = None,
    device: str = "auto",
    devices: int = 1,
    threads: int | None = None,
    strip_exponent: bool = False,
    algebra: tnplan.Algebra | str | None = None,
    max_bond: int | None = None,
    cutoff: float | None = None,
    mode: str | None = None,
) -> Any:
    """Contract arrays to one array.

    Parameters
    ----------
    network : str, array, TensorNetwork, ContractionTree, ContractionPath, Network, path or Schedule
        An einsum equation, in all of NumPy's and opt_einsum's syntax; or, as the first argument of
        interleaved lists, an array; or a network of quimb, which has its arrays; or a tree of cotengra; or
        a path or a schedule, or the file of one.
    *arrays : array_like
        The tensors in the order of the network: arrays of NumPy, CuPy, torch or JAX, or others with DLPack.
        torch and JAX differentiate, map and compile a call as they do an einsum.
    out : array, optional
        Where the result is written: an array of the library of the arrays and on their device, with the
        shape of the result and a dtype that holds all its values. It may be one of the arrays.
    optimize : str, bool, list or object
        How the contraction path is found where `network` has none. "auto", True or None: with as much search
        as it can gain. False: the arrays in their order. A method of cotengra by name, a list of pairs of
        positions as opt_einsum has it, an optimizer object of cotengra or opt_einsum, or the path of this
        network.
    hardware : Profile, name or path
        The machine whose costs decide the layout. Default: the shipped profile of the device.
    memory : float or str, optional
        The most bytes that tensors take on a device while they are contracted, such as "12GiB". On a CPU
        copies of the arrays come beside them. Default: what is free.
    precision : str, optional
        How values are multiplied; default: as their dtype says.
    device : {"auto", "cpu", "gpu"}
        Where it is carried out. "auto": where the arrays are; for arrays of the host a GPU only where a CPU
        would take a second or more.
    devices : int
        Devices that share the work, each with the `memory` that is stated: GPUs, or threads of this process
        as ranks on the CPU. Under mpirun those of all its ranks, which all make this call with equal arrays;
        the result is on rank 0, and None on the others.
    threads : int, optional
        Threads of a device on a CPU. Default: as BLAS is set; of several, the cores over their number.
    strip_exponent : bool
        Return a pair (mantissa, exponent): the result is mantissa * 10^exponent, and may be beyond the range
        of the dtype. The mantissa's largest real or imaginary part is from 0.5 to 1.
    algebra : str or Algebra, optional
        What adds and multiplies: "max-plus", "min-plus", "boolean", "residues:7", or an algebra of
        `tnplan.Algebra`. The arrays have its values, and so has the result, in its dtype. Default: sums and
        products of numbers.
    max_bond : int, optional
        Contract to an approximate number, from 2: bonds between results in between that are larger are cut to
        so many singular values (Gray and Chan, arXiv 2206.07044). Of the other options `memory`, `device`,
        `devices` and `threads` go with it.
    cutoff : float, optional
        With `max_bond`: singular values of such a bond are left out below this share of the largest. Default:
        1e-10.
    mode : {"auto", "compressed", "boundary"}, optional
        With `max_bond`: pairs in an order that is searched, as quimb's `contract_compressed`; or a square
        lattice row by row from both sides, as its `contract_boundary`. "auto", the default: what is predicted
        to take less.

    Returns
    -------
    array or BondLimitedContraction
        Of the library of the arrays and on their device, with the dtype to which NumPy promotes theirs; `out`
        where that is given. As in `numpy.einsum`, it is a view of the array where there is one array of which
        nothing is summed. With `max_bond` an answer with the value and an estimate of its error.

    Raises
    ------
    InputError
        Where the arrays do not fit the network, or the dtype of the result cannot hold its values.

    Examples
    --------
    >>> import numpy as np
    >>> tnplan.contract("ab,bc->ac", np.eye(2), np.ones((2, 3))).shape
    (2, 3)
    """
    # docs/explanation/architecture.md#calls-and-commands
    if algebra is None:
        _expect_gpu(device, arrays)
    options = optimize, hardware, memory, precision, device, devices, threads, strip_exponent
    if max_bond is not None or cutoff is not None or mode is not None:
        from tnplan.jobs.arrays.bond_limited_contraction import contract_bond_limited

        return contract_bond_limited(network, arrays, (*options, algebra, out), max_bond, cutoff, mode)
    if algebra is not None:
        from tnplan.jobs.arrays.algebra_contraction import contract_over

        result = contract_over(algebra, network, arrays, options)
    else:
        if not _loaded:
            _load()
        result = _loaded[1](network, arrays, options)
    if out is None:
        return result
    from tnplan.jobs.arrays.arrays import store

    return store(result, out)


_loaded: list[Callable[..., Any]] = []
"""What contracts: an equation without options, and all. A list and no cached function: torch.compile, which
reads `contract`, warns of caches."""


def _load() -> None:
    """Import what contracts. It comes behind `_expect_gpu`: the GPU begins in the meantime."""
    from tnplan.jobs.arrays.contracted import contract_arrays, contract_plain

    _loaded.extend((contract_plain, contract_arrays))


def compile(
    network: Any,
    *shapes: Any,
    dtype: str | None = None,
    constants: Mapping[int, Any] | None = None,
    batch: int | None = None,
    batched: Sequence[int] | None = None,
    keep: bool = False,
    calls: int | None = None,
    optimize: Any = "auto",
    hardware: tnplan.Profile | str | Path | None = None,
    memory: float | str | None = None,
    precision: str | None = None,
    device: str = "auto",
    devices: int = 1,
    threads: int | None = None,
    strip_exponent: bool = False,
    algebra: tnplan.Algebra | str | None = None,
) -> tnplan.CompiledContraction:
    """Make a contraction ready to be called again and again with new values.

    Parameters
    ----------
    network : str, TensorNetwork, ContractionTree, ContractionPath, Network, path or Schedule
        As in `contract`.
    *shapes : tuple or array
        The shapes of all tensors, or arrays of these shapes, where `network` is an equation. Those of a batch
        are the shapes of one value.
    dtype : str, optional
        "float32", "float64", "complex64" or "complex128". Default: that of the arrays given, of the path or
        of the schedule.
    constants : mapping of int to array_like, optional
        Tensors by their number that are the same in all calls, which then take only the others. What
        depends only on constants is contracted once and kept as far as the memory allows.
    batch : int, optional
        The tensors of a batch have a first axis of any length, and so has the result. So many values are
        contracted at once, or as many as the memory allows.
    batched : sequence of int, optional
        The numbers of the tensors of the batch. Default: all that are not constant.
    keep : bool
        Keep all results in between as far as the memory allows, so that `CompiledContraction.update` with a
        few new tensors repeats only what depends on them.
    calls : int, optional
        About how often it will be called. The search for a path weighs what is contracted once against what
        is contracted in each call, and takes the longer the more it can gain. Default: the batch; 1000 where
        there are constants; else 1.
    optimize, hardware, memory, precision, device, devices, threads, strip_exponent, algebra
        As in `contract`. An algebra has a dtype of its own, and no gradients.

    Returns
    -------
    CompiledContraction
        To be called with arrays.

    Raises
    ------
    InputError
        Where the network, the shapes or the options do not fit together, or the memory does not suffice.

    Examples
    --------
    >>> import numpy as np
    >>> with tnplan.compile("ab,bc->ac", (2, 3), (3, 4), dtype="float64") as product:
    ...     product(np.ones((2, 3)), np.ones((3, 4))).shape
    (2, 4)
    """
    # docs/explanation/architecture.md#calls-and-commands
    if not isinstance(constants, Mapping | None):
        raise InputError("constants", f"are {type(constants).__name__}", "give a dict of arrays by number")
    fixed = dict(constants or {})
    if algebra is None:
        _expect_gpu(device, (*shapes, *fixed.values()))
    from tnplan.executor.device.cpu.algebra import algebra_of
    from tnplan.jobs.arrays.options import CallOptions, ContractionOptions, in_bytes
    from tnplan.jobs.arrays.planning import compile_network

    # A contraction that is compiled waits for the kernels of its chains: it will be called again and again.
    options = ContractionOptions(
        optimize, hardware, in_bytes(memory), precision, device, devices, threads,
        strip_exponent=strip_exponent, waits_for_kernels=True, algebra=algebra_of(algebra),
    )  # fmt: skip
    of_calls = CallOptions(dtype, fixed, batch, batched, keep, calls)
    if options.algebra is None:
        return compile_network(network, shapes, options, of_calls)
    from tnplan.jobs.arrays.algebra_contraction import compile_over

    return compile_over(network, shapes, options, of_calls)


def _expect_gpu(device: str, arrays: Iterable[Any]) -> None:
    """Let a GPU begin that is asked for by name.

    With "auto" a small contraction stays on the CPU. Arrays of other libraries than NumPy may be on another
    GPU than the first, which is used then.
    """
    is_gpu = isinstance(device, str) and device == "gpu"
    if is_gpu and all(type(array).__module__ in ("builtins", "numpy") for array in arrays):
        expect_gpu(device)
