"""Two GPUs of one machine that are taken for those of two hosts: the bits of neighbours, by the network."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.contraction.schedules import planned, sliced_lattice
from tests.support.kernels.gpus import needs_gpus
from tests.support.mpirun import mpirun, needs_mpi
from tests.support.networks import random_arrays
from tests.support.root import ROOT
from tnplan.planner.networks.tensors import save_tensors
from tnplan.planner.schedule.file import save_schedule

pytestmark = [needs_mpi, pytest.mark.mpi]
OWN_HOST = ROOT / "tests" / "support" / "robustness" / "own_host.py"
QSIM = "8\n0 h 0\n1 cz 0 1\n2 rz 1 0.5\n3 h 2\n4 cz 1 2\n5 h 3\n6 cz 3 0\n7 h 0\n8 fs 6 7 0.3 0.2\n"


@needs_gpus(2)
@pytest.mark.parametrize("line", [
    "execute pair.json --device gpu -o OUT.npy",
    "statevector c.qsim --observable Z0 --amplitudes 00000000,01100001 --device gpu -o OUT.json",
])  # fmt: skip
def test_gpus_that_are_no_neighbours_exchange_by_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = replace(sliced_lattice(2, n_sliced=5), tensors="tensors.npz")
    save_tensors(random_arrays(path, 1), tmp_path / "tensors.npz")
    save_schedule(planned(path, ranks=2), tmp_path / "pair.json")
    (tmp_path / "c.qsim").write_text(QSIM)
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
        assert found[0]["amplitudes"] == found[1]["amplitudes"]
