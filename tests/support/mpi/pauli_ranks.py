"""Propagates one circuit on all ranks, by cpu or gpu, and on this one alone; rank 0 says if they agree."""

from __future__ import annotations

import math
import sys
from contextlib import nullcontext

import numpy as np

from tests.support.engines.pauli import amplitude_damping
from tnplan.circuits.pauli_sum import parse
from tnplan.executor.device.comm.mpi import world
from tnplan.executor.device.select import open_device
from tnplan.executor.pauli import resharding
from tnplan.executor.pauli.algebra.gates import PauliStep, rotation
from tnplan.executor.pauli.cuda import terms as gpu_terms
from tnplan.executor.pauli.propagate import propagate
from tnplan.executor.pauli.resources import Resources
from tnplan.executor.pauli.terms.truncation import Truncation

device = sys.argv[1]
# so that words move, in several rounds
gpu_terms.MOVED_TERMS, gpu_terms.MOVED_ROWS_SHARE, resharding.FEW_TERMS = 50, 1 << 40, 100
gpu_terms.COSTS = gpu_terms.COSTS._replace(alone_below=100)
ranks = world()
steps: list[PauliStep] = [rotation("X", (q,), 0.7) for q in range(40)]
steps += [rotation("ZZ", (q, q + 1), -math.pi / 2) for q in range(39)]
steps = [*(steps * 4), amplitude_damping(20, 0.1), *steps]
most = 400 if device == "cpu" else None
limits = Truncation(branch_cut=1e-3, merged_cut=1e-3, max_terms=most)
chosen = open_device(device, ranks, 0, 1)
with chosen.device.stream if device == "gpu" else nullcontext():  # type: ignore[attr-defined]
    use = Resources(device=device, ranks=chosen.ranks.split(0, ranks.rank))
    shared = propagate(steps, parse("Z20", 40), limits, use)
alone = propagate(steps, parse("Z20", 40), limits)
assert shared.result.n_terms == most or (most is None and shared.result.n_terms > 400)
assert np.array_equal(shared.result.keys, alone.result.keys)
assert np.allclose(shared.result.coefficients, alone.result.coefficients, rtol=0, atol=1e-14)
assert shared.record == alone.record
chosen.close()
ranks.barrier()
if ranks.rank == 0:
    print(f"{ranks.size} ranks agree with one")
