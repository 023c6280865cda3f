"""Two GPUs of one machine that are taken for those of two hosts: the bits of neighbours, by the network."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.contraction.schedules import planned, sliced_lattice
from tests.support.engines.sbd import fcidump_text, lines_of, random_integrals, some_strings
from tests.support.kernels.gpus import needs_gpus
from tests.support.mpirun import mpirun, needs_mpi
from tests.support.networks import random_arrays
from tests.support.root import ROOT
from tnplan.planner.networks.tensors import save_tensors
from tnplan.planner.schedule.file import save_schedule

pytestmark = [needs_mpi, pytest.mark.mpi]
OWN_HOST = ROOT / "tests" / "support" / "robustness" / "own_host.py"
LINES = [
    line
    for time in range(0, 16, 4)
    for line in (
        *(f"{time} rx {q} 0.4" for q in range(8)),
        *(f"{time + 1} cz {q} {q + 1}" for q in range(0, 8, 2)),
        *(f"{time + 2} rz {q} 0.3" for q in range(8)),
        *(f"{time + 3} cz {q} {q + 1}" for q in range(1, 7, 2)),
    )
]
QSIM = "\n".join(["8", *LINES, ""])


@needs_gpus(2)
@pytest.mark.parametrize("line", [
    "execute pair.json --device gpu -o OUT.npy",
    "statevector c.qsim --observable Z0 --amplitudes 00000000,01100001 --device gpu -o OUT.json",
    "sbd h.fcidump --alpha a.txt --device gpu -o OUT.npz",
])  # fmt: skip
def test_gpus_that_are_no_neighbours_exchange_by_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = replace(sliced_lattice(2, n_sliced=5), tensors="tensors.npz")
    save_tensors(random_arrays(path, 1), tmp_path / "tensors.npz")
    save_schedule(planned(path, ranks=2), tmp_path / "pair.json")
    (tmp_path / "c.qsim").write_text(QSIM)
    (tmp_path / "h.fcidump").write_text(fcidump_text(random_integrals(8, 4, 4, 5)))
    (tmp_path / "a.txt").write_text(lines_of(some_strings(8, 4, 40, 1), 8))
    near = mpirun(2, "-m", "tnplan", *line.replace("OUT", "near").split())
    assert near.returncode == 0, near.stderr
    apart = mpirun(2, OWN_HOST, *line.replace("OUT", "apart").split(), NCCL_DEBUG="INFO")
    assert apart.returncode == 0, apart.stderr
    assert "via NET" in apart.stdout + apart.stderr
    if "execute" in line:
        assert (tmp_path / "near.npy").read_bytes() == (tmp_path / "apart.npy").read_bytes()
        sent = json.loads((tmp_path / "apart.json").read_text())["measured"]
        assert sent["sent_bytes_all_ranks"] > 0 == sent["direct_bytes_all_ranks"]
    else:
        found = [json.loads((tmp_path / f"{name}.json").read_text()) for name in ("near", "apart")]
        key = "amplitudes" if "statevector" in line else "energies_hartree"
        assert found[0][key] == found[1][key]
