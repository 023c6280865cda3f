"""Progress counts work: with a clock that advances by the operations of each step, the time left is right.

The clock is one of counted work, so that no test depends on how fast a machine is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.circuit_families import FAMILIES, dynamic, graph
from tnplan.circuits.circuit import GateSequence
from tnplan.cli.terminal import ProgressLines
from tnplan.executor.pauli import propagate
from tnplan.executor.pauli.terms import sharded
from tnplan.executor.statevector.simulator import Simulator
from tnplan.jobs.progress import TimeLeft
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.search_in_proportion import greedy_or_orders
from tnplan.questions.engines import mps, task_list
from tnplan.questions.tensor_networks import expectation, sample, samples_by_gates
from tnplan.questions.tensor_networks.networks import ClosedNetwork, predicted_work, preparing_s

FACTOR = 2.0
JOB: dict[str, Any] = {"device": "cpu", "threads": 1}


class Work:
    """A clock of counted work, and the times left that progress has by it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reports: list[tnplan.Progress] = []
        self.shown: list[tuple[float, float]] = []
        self._left = TimeLeft(lambda: self.now)

    def __call__(self, at: tnplan.Progress) -> None:
        self.reports.append(at)
        left = self._left.after(at)
        if left is not None:
            self.shown.append((self.now, left))

    def before(self, function: Callable[..., Any], cost: Callable[..., float]) -> Callable[..., Any]:
        """The function, which takes so long by the clock."""

        def counted(*values: Any, **named: Any) -> Any:
            result = function(*values, **named)
            self.now += cost(*values, **named)
            return result

        return counted

    @property
    def worst(self) -> float:
        """The largest factor between a time left and what was left, from a tenth of the work on."""
        late = [(left, self.now - at) for at, left in self.shown if at >= 0.1 * self.now and at < self.now]
        assert len(late) >= 2
        return max(max(left / real, real / left) for left, real in late)

    @property
    def shares(self) -> list[float]:
        """Those of all reports that have one."""
        return [at.share for at in self.reports if at.share is not None]


def circuit(family: str, shape: str, n_qubits: int, depth: int, seed: int = 1) -> GateSequence:
    """One of a family."""
    random = np.random.default_rng(seed)
    n, edges = graph(shape, n_qubits, random)
    return GateSequence(n, tuple(FAMILIES[family](n, edges, depth, random)))


def each_z(of: GateSequence) -> list[str]:
    """Z of every qubit."""
    return [f"Z{qubit}" for qubit in range(of.n_qubits)]


def network_s(closed: ClosedNetwork) -> float:
    """Seconds of a network by the operations of its own path, for all its rows, and to prepare it."""
    n_left = len(closed.network.inputs)
    path = ContractionPath(closed.network, greedy_or_orders(closed.network, "complex128"), (), "complex128")
    row_s = 10 ** path_cost(path).log10_mnk_all_slices / 6e9 + n_left * 1e-6
    return preparing_s(closed.n_tensors, n_left, row_s) + closed.count * row_s


CHAINS = [
    ("brickwork", "line", 20, 4), ("trotter", "line", 24, 2), ("vqe", "line", 40, 2), ("qaoa", "ring", 20, 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "way"),
    [*((case, way) for case in CHAINS for way in ("chain", "gates")), (("ghz", "line", 60, 1), "chain")],
    ids=str,
)
def test_samples_by_contraction(case: Any, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later groups cost more: their networks are larger, and have more different beginnings."""
    work, of = Work(), circuit(*case)

    def cost(opened: Any, leaves: Sequence[Any], _: Any) -> float:
        return network_s(ClosedNetwork.of(opened, leaves))

    counted = {"chain": (sample, "contract_batch"), "gates": (samples_by_gates, "plan_batch")}[way]
    monkeypatch.setattr(*counted, work.before(getattr(*counted), cost))
    tnplan.Circuit(of).sample(200, method="contraction", sampling=way, seed=1, progress=work, **JOB)
    assert work.shares[0] == 0
    assert work.shares[-1] == pytest.approx(1)
    assert work.worst < FACTOR


@pytest.mark.parametrize(
    "case",
    [
        ("brickwork", "ring", 24, 3),
        ("vqe", "line", 24, 3),
        ("trotter", "lattice", 16, 1),
        ("ghz", "line", 40, 1),
    ],
    ids=str,
)
def test_light_cones(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cones are of all sizes along a line of gates."""
    work, of = Work(), circuit(*case)
    monkeypatch.setattr(task_list, "MEETING_S", -1.0)
    # Cones that threads plan meanwhile would be on the clock before they are done.
    monkeypatch.setattr(expectation, "MOST_AHEAD", 0)
    monkeypatch.setattr(
        expectation, "plan_closed", work.before(expectation.plan_closed, lambda c, _: network_s(c))
    )
    tnplan.Circuit(of).expectation(each_z(of), method="contraction", progress=work, **JOB)
    assert work.shares[0] == 0
    assert work.shares[-1] == pytest.approx(1)
    assert work.worst < FACTOR


def test_gradients_of_light_cones(tmp_path: Path) -> None:
    """The share of the work is that of cones, of which the last ones here are the largest."""
    n, path, work = 8, tmp_path / "named.qasm", Work()
    gates = [f"ry({q + 1} * t) q[{q}];" for q in range(n)] + [f"cx q[{q}], q[{q + 1}];" for q in range(n - 1)]
    path.write_text(f'OPENQASM 3.0; include "stdgates.inc"; input float t; qubit[{n}] q;' + "\n".join(gates))
    of = tnplan.Circuit(path, {"t": 0.3})
    of.expectation([f"Z{q}" for q in range(n)], gradient=True, method="contraction", progress=work, **JOB)
    assert work.shares[0] == 0
    assert work.shares[-1] == pytest.approx(1)
    steps = np.diff(work.shares)
    assert all(steps > 0)
    assert steps[-1] > 1.5 * steps[0]


def test_sums_of_one_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each word of a sum is a pass over the state."""
    work = Work()
    sums = [tnplan.PauliSum.of({f"Z{q}": 1.0 for q in range(1 + k % 13)}, 13) for k in range(1, 40)]
    monkeypatch.setattr(task_list, "MEETING_S", -1.0)
    monkeypatch.setattr(
        Simulator, "expectation", work.before(Simulator.expectation, lambda _, observable: observable.n_terms)
    )
    of = tnplan.Circuit(circuit("brickwork", "line", 13, 3))
    of.expectation(sums, method="statevector", progress=work, **JOB)
    assert work.worst == pytest.approx(1)


def test_figures_of_networks_lie_between_those_looked_at() -> None:
    """Five networks are made; of others, by their sizes, the work is between."""
    looked: list[int] = []

    def look(number: int) -> tuple[tnplan.Network, int]:
        looked.append(number)
        n = sizes[number]
        inputs = tuple((f"a{k}", f"a{k + 1}") for k in range(n))
        return tnplan.Network(inputs, ("a0", f"a{n}"), {f"a{k}": 2 for k in range(n + 1)}), 10 * n

    sizes = [30, 2, 16, 9, 23, 5, 12, 19, 26]
    work = predicted_work(sizes, look)
    assert [sizes[k] for k in looked] == [2, 9, 16, 23, 30]
    assert [work[k].start_s for k in looked] == [preparing_s(10 * sizes[k], sizes[k], 0.0) for k in looked]
    by_size = [work[k] for k in np.argsort(sizes)]
    for one, following in pairwise(by_size):
        assert one.start_s < following.start_s
        assert one.row_s < following.row_s
    assert predicted_work([], look) == []


def test_candidates_are_counted() -> None:
    """By rejection: the slices of a round are a share of its candidates."""
    work = Work()
    of = tnplan.Circuit(circuit("brickwork", "lattice", 9, 12))
    of.sample(20, method="contraction", sampling="rejection", seed=1, progress=work, **JOB)
    assert work.shares == sorted(work.shares)
    assert work.shares[0] == 0
    assert work.shares[-1] == pytest.approx(1)


UNKNOWN: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "terms that grow": ("expectation", ["Z6", "Z3"], {"method": "pauli"}),
    "bonds that grow": ("expectation", "Z6", {"method": "mps"}),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_no_time_left_where_the_work_is_not_known(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    question, wanted, options = UNKNOWN[name]
    if options["method"] == "mps":
        pytest.importorskip("quimb")
    monkeypatch.setattr(propagate, "PROGRESS_INTERVAL_S", 0.0)
    monkeypatch.setattr(sharded, "MOST_ROTATIONS", 8)
    monkeypatch.setattr(mps, "TELL_S", 0.0)
    work, of = Work(), tnplan.Circuit(circuit("trotter", "line", 12, 2))
    monkeypatch.setattr("tnplan.cli.terminal.LOG_EVERY_S", 0.0)
    with ProgressLines() as lines:

        def listen(at: tnplan.Progress) -> None:
            lines(at)
            work(at)

        getattr(of, question)(wanted, progress=listen, **JOB, **options)
    assert len(work.reports) > 3
    assert not work.shares
    shown = capsys.readouterr().err
    assert " of " in shown
    assert " left" not in shown


def test_runs_that_share_their_states_have_no_time_left() -> None:
    random, work = np.random.default_rng(3), Work()
    of = tnplan.Circuit(dynamic(circuit("brickwork", "line", 6, 3), random))
    of.sample(30, method="statevector", seed=1, progress=work, **JOB)
    assert [at.done for at in work.reports if at.total][-1] == 30
    assert not work.shares


@pytest.mark.parametrize("method", ["mps", "stabilizer"])
def test_shots_cost_the_same(method: str) -> None:
    pytest.importorskip({"mps": "quimb", "stabilizer": "stim"}[method])
    work, of = Work(), tnplan.Circuit(circuit("ghz", "line", 6, 1))
    of.sample(50, method=method, seed=1, progress=work, **JOB)
    assert [at.share for at in work.reports if at.share is not None][-1] == 1


def test_what_a_checkpoint_had_took_no_time() -> None:
    left = TimeLeft(iter([10.0, 13.0, 16.0]).__next__)
    assert left.after(tnplan.Progress(4, 8, "")) is None
    assert left.after(tnplan.Progress(4, 8, "", share=0.5)) is None
    assert left.after(tnplan.Progress(5, 8, "", share=0.625)) == pytest.approx(9)
    assert left.after(tnplan.Progress(6, 8, "", share=0.75)) == pytest.approx(6)
