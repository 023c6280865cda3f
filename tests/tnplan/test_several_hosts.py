"""Jobs on hosts made of namespaces: the bits of one host, and an end of every fault."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.support.effort import repeats
from tests.support.engines.sbd import fcidump_text, lines_of, random_integrals, some_strings
from tests.support.mpirun import OPEN_MPI_VARIABLE, needs_mpi, open_mpi
from tests.support.robustness.early_faults import KINDS, early_trial
from tests.support.robustness.faults import FAULTS, make_problem, trial
from tests.support.robustness.hosts import Cluster, cluster, ended, needs_hosts
from tnplan.cli.main import run
from tnplan.planner.hardware.profile import load_profile

pytestmark = [needs_mpi, needs_hosts, pytest.mark.mpi]
LIMIT_S = 100.0
QSIM = "8\n0 h 0\n1 cz 0 1\n2 rz 1 0.5\n3 h 2\n4 cz 1 2\n5 h 3\n6 cz 3 0\n7 h 0\n8 fs 6 7 0.3 0.2\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def hosts(folder: Path) -> Iterator[Cluster]:
    with cluster(2, folder) as made:
        yield made


def done(
    made: Cluster, line: str, status: int = 0, ranks: int | Sequence[int] = 2, launcher: str = "hydra"
) -> str:
    """What a command prints as an error on two ranks of every host; it ends with the status."""
    job = made.mpirun(ranks, ["-m", "tnplan", *line.split()], launcher)
    found, error, _ = ended(job, LIMIT_S)
    assert found == status, error
    return error


needs_open_mpi = pytest.mark.skipif(
    open_mpi() is None, reason=f"needs Open MPI 5, on the path or in {OPEN_MPI_VARIABLE}"
)
LAUNCHERS = ["hydra", pytest.param("openmpi", marks=[pytest.mark.slow, needs_open_mpi])]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_contraction_has_the_bits_of_one_host(folder: Path, hosts: Cluster, launcher: str) -> None:
    expected = make_problem(folder)
    done(hosts, "execute schedule.json --device cpu --threads 1 -o r.npy", launcher=launcher)
    assert np.load("r.npy").tobytes() == expected.tobytes()
    report = json.loads(Path("r.json").read_text())
    assert report["environment"]["hosts"] == ["h0", "h1"]
    assert "builds" not in report["environment"]


ENGINES: dict[str, Callable[[], object]] = {
    "pauli c.qsim --observable X0 --threads 1 --device cpu -o OUT.json": lambda: _report("expectation"),
    "statevector c.qsim --observable Z0 --amplitudes 00000000,01100001 --threads 1 --device cpu -o OUT.json":
        lambda: _report("amplitudes"),
    "sbd h.fcidump --alpha a.txt --threads 1 --device cpu -o OUT.npz": lambda: _report("energies_hartree"),
}  # fmt: skip


def _report(name: str) -> dict[str, object]:
    return {ranks: json.loads(Path(f"{ranks}.json").read_text())[name] for ranks in ("one", "two")}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_three_hosts_have_the_bits_of_one(folder: Path, launcher: str) -> None:
    expected = make_problem(folder)
    Path("h.fcidump").write_text(fcidump_text(random_integrals(6, 3, 3, 5)))
    Path("a.txt").write_text(lines_of(some_strings(6, 3, 14, 1), 6))
    line = "sbd h.fcidump --alpha a.txt --threads 1 --device cpu -o OUT.npz"
    with cluster(3, folder) as made:
        line_of_four = "execute schedule.json --device cpu --threads 1 -o r.npy"
        done(made, line_of_four, ranks=(1, 2, 1), launcher=launcher)
        done(made, line.replace("OUT", "two"), launcher=launcher)
    assert np.load("r.npy").tobytes() == expected.tobytes()
    assert json.loads(Path("r.json").read_text())["environment"]["hosts"] == ["h0", "h1", "h2"]
    assert run([*line.replace("OUT", "one").split(), "--ranks", "6"]) == 0
    found = _report("energies_hartree")
    assert found["one"] == found["two"]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("line", ENGINES)
def test_other_engines_have_the_bits_of_one_host(
    folder: Path, hosts: Cluster, line: str, launcher: str
) -> None:
    Path("c.qsim").write_text(QSIM)
    Path("h.fcidump").write_text(fcidump_text(random_integrals(6, 3, 3, 5)))
    Path("a.txt").write_text(lines_of(some_strings(6, 3, 14, 1), 6))
    done(hosts, line.replace("OUT", "two"), launcher=launcher)
    assert run([*line.replace("OUT", "one").split(), "--ranks", "4"]) == 0
    found = ENGINES[line]()
    assert found["one"] == found["two"]  # type: ignore[index]


@pytest.mark.slow
def test_a_folder_that_is_not_shared_is_refused_before_work(folder: Path) -> None:
    make_problem(folder)
    with cluster(2, folder, own_folders=True) as made:
        line = "execute schedule.json --device cpu --threads 1 -o disk/r.npy"
        said = done(made, line, 2)
        assert len(said.splitlines()) == 1, said
        assert "disk on h1: is not the folder that rank 0 writes to" in said
        assert all(host.run("ls", "-A", str(folder / "disk")) == "" for host in made.hosts)
        done(made, f"{line} --no-checkpoint")


@pytest.mark.slow
def test_hosts_of_other_builds_are_refused_or_recorded(folder: Path, hosts: Cluster) -> None:
    make_problem(folder)
    other = folder / "cpuinfo"
    other.write_text("model name\t: another one\n")
    hosts.hosts[1].run("mount", "--bind", str(other), "/proc/cpuinfo")
    line = "execute schedule.json --device cpu --threads 1 -o r.npy"
    said = done(hosts, line, 2)
    assert "rank 2 on h1: has cpu another one" in said
    assert not Path("r.npy").exists()
    done(hosts, f"{line} --allow-mixed-builds")
    assert [*json.loads(Path("r.json").read_text())["environment"]["builds"]] == ["h0", "h1"]


@pytest.mark.slow
def test_tiers_within_and_between_hosts_are_measured(hosts: Cluster) -> None:
    line = "calibrate --base cpu --device cpu --size 1MiB --dtype complex64 -o own.toml"
    done(hosts, line)
    near, far = load_profile("own.toml").tiers
    assert (near.devices, far.name, far.devices) == (2, "network", 0)
    assert far.bytes_per_s > 0


@pytest.mark.slow
def test_ranks_that_lie_apart_are_named(folder: Path, hosts: Cluster) -> None:
    make_problem(folder)
    said = done(hosts, "execute schedule.json --device cpu --threads 1 -o r.npy", ranks=(1, 3))
    assert "planned for 2 ranks a host that exchange by fast; here 1 are together: " in said


@pytest.mark.slow
@pytest.mark.parametrize("number", range(repeats(1, 6) * len(FAULTS)))
def test_a_fault_ends_the_job_and_it_goes_on_equal(folder: Path, number: int) -> None:
    outcome = trial(number, folder, make_problem(folder))
    assert outcome.wrong(FAULTS[number % len(FAULTS)]) == "", outcome
    assert os.listdir(folder / "disk") == []


@pytest.mark.slow
@pytest.mark.parametrize("number", range(repeats(1, 20) * len(KINDS)))
def test_a_host_that_is_lost_while_the_job_starts_ends_it(folder: Path, number: int) -> None:
    make_problem(folder)
    outcome = early_trial(number, folder)
    assert outcome.wrong == "", outcome
