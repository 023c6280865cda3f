"""The kernels of terms on a CPU, each with arguments of the types that it is called with."""

from __future__ import annotations

import numpy as np

from tnplan.circuits.pauli_sum import PauliSum
from tnplan.common.kernels.ahead import Sample, Samples
from tnplan.executor.pauli.algebra.gates import Clifford
from tnplan.executor.pauli.algebra.tableau import clifford_layer
from tnplan.executor.pauli.terms import batched_rotations_kernel as many
from tnplan.executor.pauli.terms import clifford_kernel, hash_table_kernel
from tnplan.executor.pauli.terms.batched_rotations import UNBOUNDED, shard_tables
from tnplan.executor.pauli.terms.hash_table import Branches, HashTerms
from tnplan.executor.pauli.terms.protocol import RotationBatch
from tnplan.executor.pauli.terms.truncation import TermLimits

LIMITS = TermLimits(0.0, 1, 1, 1, False)


def rotation_kernels(dtype: str) -> list[Samples]:
    """What a propagation by rotations alone calls."""
    return [Samples(__name__, "of_rotations", (dtype,)), Samples(__name__, "of_tables", (dtype,))]


def _one_term(dtype: str) -> HashTerms:
    """A shard that calls no kernel itself."""
    terms = HashTerms(PauliSum(1, np.ones((1, 2), np.uint64), np.ones(1, dtype)))
    terms.is_new = terms.is_stale = False
    return terms


def of_rotations(dtype: str) -> list[Sample]:
    """The kernels of many rotations at once."""
    tables, numbers, reals = shard_tables([_one_term(dtype)], 1), np.zeros(1, np.int64), np.zeros(1)
    rotations = RotationBatch(np.zeros((1, 2), np.uint64), reals, reals, np.zeros(1, np.bool_), numbers)
    return [(many.rotate_shards, (tables, rotations, (0.0, LIMITS, False), UNBOUNDED, 0, 1))]


def of_tables(dtype: str) -> list[Sample]:
    """The kernels that make tables of terms, before rotations and after them."""
    term, kernel = _one_term(dtype), hash_table_kernel
    arrays, tables = term.arrays, shard_tables([term], 1)
    return [
        (kernel.tag_all, (arrays.keys, 0, arrays.tags)),
        (kernel.rebuild, (arrays.tags, arrays.where, 0, arrays.slots)),
        (many.begin_rotations, (tables, 2)),
        (many.end_rotations, (tables, 2)),
    ]


def of_steps(dtype: str) -> list[Sample]:
    """The kernels of single steps: rotations over ranks, Cliffords, transfers, sweeps."""
    arrays, kernel = _one_term(dtype).arrays, hash_table_kernel
    word, numbers, reals = np.zeros(2, np.uint64), np.zeros(1, np.int64), np.zeros(1)
    sent = arrays.senders, arrays.values, arrays.counts
    branches = Branches(arrays.keys, arrays.tags, *sent, word)
    packed = Branches(np.zeros((2, 2), np.uint64), arrays.tags, *sent, word)
    layer = clifford_layer((Clifford((0,), np.arange(4), np.ones(4)),), 1)
    keys, coefficients = arrays.keys, arrays.coefficients
    return [
        (kernel.merge_branches, (arrays, (0, 0, 0), branches, False, True)),
        (kernel.merge_branches, (arrays, (0, 0, 0), packed, False, True)),
        (kernel.meet, (arrays, branches, True)),
        (kernel.meet, (arrays, packed, True)),
        (kernel.split, (arrays, 0, True, (word, 1.0, 0.0), 0.0)),
        (kernel.sweep, (arrays, 0, 0, LIMITS, False, (0, 0))),
        (kernel.anticommuting, (keys, 0, word, arrays.hits, arrays.columns)),
        (kernel.close_gaps, (arrays, 0, 0)),
        (kernel.tag_all, (packed.keys, 0, arrays.tags)),
        (clifford_kernel.clifford, (keys, coefficients, 0, layer, word)),
        (clifford_kernel.branches, (arrays, 0, numbers, reals, 0.0, sent)),
        (clifford_kernel.scale, (keys, coefficients, 0, numbers, reals, np.zeros(1, np.bool_))),
    ]
