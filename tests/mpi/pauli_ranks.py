"""Propagates one circuit on all ranks and on this one alone; rank 0 says whether they agree."""

from __future__ import annotations

import math

import numpy as np

from executor.device.mpi import world
from executor.pauli.channels import amplitude_damping
from executor.pauli.propagate import propagate
from executor.pauli.resources import Resources
from executor.pauli.steps import Step, rotation
from executor.pauli.truncation import Truncation
from executor.pauli.words import parse

ranks = world()
steps: list[Step] = [rotation("X", (q,), 0.7) for q in range(40)]
steps += [rotation("ZZ", (q, q + 1), -math.pi / 2) for q in range(39)]
steps = [*(steps * 4), amplitude_damping(20, 0.1), *steps]
limits = Truncation(branch_cut=1e-3, merged_cut=1e-3, max_terms=400)
shared = propagate(steps, parse("Z20", 40), limits, Resources(ranks=ranks))
alone = propagate(steps, parse("Z20", 40), limits)
assert shared.result.n_terms == 400
assert np.array_equal(shared.result.keys, alone.result.keys)
assert np.allclose(shared.result.coefficients, alone.result.coefficients, rtol=0, atol=1e-14)
assert shared.record == alone.record
ranks.barrier()
if ranks.rank == 0:
    print(f"{ranks.size} ranks agree with one")
