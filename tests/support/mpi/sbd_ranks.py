"""Products and solves on all ranks, gathered and round a ring, beside one CPU's. Argument: cpu or gpu."""

from __future__ import annotations

import sys
from time import perf_counter

import numpy as np

from tests.support.engines.sbd import random_integrals, some_strings, string_set
from tnplan.executor.device.comm.mpi import world
from tnplan.executor.sbd.sigma import cost_model as cost
from tnplan.executor.sbd.sigma.batched import BatchedHamiltonian
from tnplan.executor.sbd.sigma.product_hamiltonian import EVEN, NEITHER, ODD, ProductHamiltonian
from tnplan.executor.sbd.solver.davidson import Criteria
from tnplan.executor.sbd.solver.setup import choose_device
from tnplan.executor.sbd.solver.solve import solve
from tnplan.executor.sbd.solver.vector_backend import DistributedVectors

device, ranks = sys.argv[1], world()
begin = perf_counter()


def say(line: str) -> None:
    if ranks.rank == 0:
        print(f"{perf_counter() - begin:6.2f} s: {line}", flush=True)


integrals = random_integrals(9, 4, 4, 4)
chosen = choose_device(device, ranks, 1)
say("connected")
with chosen.on_stream():
    for equal in (True, False):
        alpha = string_set(some_strings(9, 4, 101, 9), integrals)
        beta = None if equal else string_set(some_strings(9, 4, 64, 5), integrals)
        alone = ProductHamiltonian(integrals, alpha, beta, threads=1)
        expected = solve(alone, integrals, 2)
        say(f"{'equal' if equal else 'different'} sets, on one CPU")
        for dense in (True, False):
            h = ProductHamiltonian(
                integrals, alpha, beta, dense=dense, threads=1, rank_of=(ranks.rank, ranks.size),
                rates=cost.GPU if device == "gpu" else cost.CPU,
            )  # fmt: skip

            def make(dtype: str) -> BatchedHamiltonian | ProductHamiltonian:
                if device == "cpu":
                    return h.as_type(dtype)  # noqa: B023
                from tnplan.executor.sbd.cuda.steps import CupyBatch

                return BatchedHamiltonian(h, CupyBatch(dtype))  # noqa: B023

            for gathers in (True, False):
                backend = DistributedVectors(h, chosen.ranks, make, gathers)
                operator = backend.operator("float64")
                for parity in (EVEN, ODD, NEITHER) if equal else (NEITHER,):
                    x = alone.project(np.random.default_rng(0).standard_normal(alone.shape), parity)
                    part = backend.put(backend.local(x if ranks.rank == 0 else None), "float64")
                    made = [backend.collect(operator.apply(part, parity)) for _ in range(2)]
                    if made[0] is not None:
                        y = alone.apply(x, parity)
                        assert np.abs(made[0] - y).max() < 1e-12 * np.abs(y).max()
                        assert np.array_equal(*made)
                found = solve(h, integrals, 2, criteria=Criteria(), backend=backend, mixed_precision=True)
                assert np.allclose(found.energies, expected.energies, rtol=0, atol=1e-9)
                say(f"{'dense' if dense else 'sparse'}, {'gathered' if gathers else 'round a ring'}")
chosen.close()
ranks.barrier()
if ranks.rank == 0:
    print(f"{ranks.size} ranks agree with one")
