"""Circuits by PEPS that are interrupted and resumed: the same bits, and refusals of what does not fit."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import networkx as nx
import numpy as np
import pytest

import tnplan
from tests.support.circuit_families import brickwork
from tests.support.kernels import strict_cupy
from tests.support.mpirun import SCRIPTS, mpirun, needs_mpi
from tests.support.peps_cases import peps_case
from tests.support.robustness.checkpoint_files import (
    arrays_of,
    changed,
    document_of,
    mutated_document,
    parted,
)
from tests.support.slow import slow_after
from tests.support.stop import ask_to_stop
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.qsim import save_qsim
from tnplan.executor.device.protocols.stop_signal import StoppedRunError
from tnplan.executor.peps.checkpoint import PepsCheckpoint
from tnplan.executor.peps.state import PepsState
from tnplan.jobs.progress import Progress

WORDS = ["Z0", "X1 Z4"]
CPU: Any = {"method": "peps", "device": "cpu", "threads": 1}


class _InterruptedError(Exception):
    pass


@pytest.fixture(autouse=True)
def _write_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PepsCheckpoint, "LEAST_S", 0.0)
    monkeypatch.setattr(PepsCheckpoint, "INTERVAL", 0)


def gates_of(seed: int) -> GateSequence:
    graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 3))
    return GateSequence(9, tuple(brickwork(9, [*graph.edges], 8, np.random.default_rng(seed))))


def asked(output: Path, seed: int = 50_001, **options: Any) -> tnplan.CircuitAnswer:
    options = {**CPU, "max_bond": 6, "ranks": 1, "output": output, **options}
    return tnplan.Circuit(gates_of(seed)).expectation(WORDS, **options)


@contextmanager
def counted_files(last: int = 0) -> Iterator[list[int]]:
    """Counts the checkpoints that are written; where the last one stands its job breaks."""
    replace, counts = PepsCheckpoint.replace, [0]

    def counted(*arguments: Any) -> None:
        replace(*arguments)
        counts[0] += 1
        if counts[0] == last:
            raise _InterruptedError

    with patch.object(PepsCheckpoint, "replace", counted):
        yield counts


def interrupted(output: Path, writes: int, ask: Callable[..., Any] = asked, **options: Any) -> Path:
    """The checkpoint of a job that broke after so many writes."""
    with counted_files(writes), pytest.raises(_InterruptedError):
        ask(output, **options)
    kept = output.parent / f"{output.name}.ckpt"
    assert [*output.parent.glob("*.ckpt*"), *output.parent.glob(".*")] == [kept]
    return kept


def same(one: tnplan.CircuitAnswer, other: tnplan.CircuitAnswer) -> bool:
    """Whether two answers have the same bits."""
    bits = [[np.asarray(part).tobytes() for part in (each.value, each.error)] for each in (one, other)]
    return bits[0] == bits[1] and one.details == other.details


@pytest.mark.parametrize("precision", ["fp64", "fp32"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.6, 0.95])
def test_a_resumed_question_has_the_bits_of_an_uninterrupted_one(
    tmp_path: Path, precision: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counted_files() as counts:
        whole = asked(tmp_path / "whole.json", precision=precision)
    output, count = tmp_path / "out.json", counts[0]
    kept = interrupted(output, int(share * count), precision=precision)
    document = document_of(kept)
    assert (document["first"] is None) == (share <= 0.5)
    applied, apply = 0, PepsState.apply

    def counting(*arguments: Any) -> None:
        nonlocal applied
        applied += 1
        apply(*arguments)

    monkeypatch.setattr(PepsState, "apply", counting)
    resumed = asked(output, precision=precision, resume=True)
    assert applied == count - int(share * count)
    assert not kept.exists()
    assert same(resumed, whole)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("seed", slow_after(2, range(66_006, 66_014)))
def test_ranks_go_on_with_the_same_bits_wherever_they_broke(tmp_path: Path, seed: int, ranks: int) -> None:
    """On random circuits: a job that broke twice, after random gates."""
    kind, gates, words, bond = peps_case(seed)
    random = Random(seed + ranks)

    def ask(output: Path, **options: Any) -> tnplan.CircuitAnswer:
        options = {**CPU, "max_bond": bond, "ranks": ranks, "output": output, **options}
        return tnplan.Circuit(gates).expectation(words, **options)

    with counted_files() as counts:
        whole = ask(tmp_path / "whole.json")
    output, left = tmp_path / "out.json", counts[0]
    first = random.randint(1, left - 2)
    interrupted(output, first, ask)
    kept = interrupted(output, random.randint(1, left - first - 1), ask, resume=True)
    content = kept.read_bytes()
    assert same(ask(output, resume=True), whole), kind
    assert [path.name for path in tmp_path.iterdir() if path != tmp_path / "whole.json"] == ["out.json"]
    # Another number of ranks goes on too, to rounding.
    kept.write_bytes(content)
    other = ask(output, ranks=ranks % 3 + 1, resume=True)
    np.testing.assert_allclose(other.value, whole.value, rtol=0, atol=1e-7, err_msg=kind)
    assert not kept.exists()


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_with_a_gpu_each_go_on(tmp_path: Path, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    strict_cupy.put_in_place(monkeypatch)
    options: Any = {"device": "gpu", "ranks": ranks}
    whole, output = asked(tmp_path / "whole.json", **options), tmp_path / "out.json"
    interrupted(output, 5, **options)
    assert same(asked(output, resume=True, **options), whole)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_signal_keeps_the_last_layer(
    tmp_path: Path, number: signal.Signals, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PepsCheckpoint, "is_due", lambda _: False)
    before, output = signal.getsignal(number), tmp_path / "out.json"
    whole = asked(tmp_path / "whole.json", ranks=ranks)

    def progress(at: Progress) -> None:
        if at.done == 5:
            ask_to_stop(number)

    with pytest.raises(StoppedRunError, match=f"stopped for {number.name}, with a checkpoint; continue"):
        asked(output, ranks=ranks, progress=progress)
    assert signal.getsignal(number) is before
    assert document_of(tmp_path / "out.json.ckpt")["done"] == 5
    assert same(asked(output, ranks=ranks, resume=True), whole)
    assert not (tmp_path / "out.json.ckpt").exists()


@needs_mpi
@pytest.mark.slow
def test_processes_stop_for_the_signal_of_one(tmp_path: Path) -> None:
    save_qsim(gates_of(50_001), tmp_path / "c.qsim")
    line = ["expectation", tmp_path / "c.qsim", *(part for word in WORDS for part in ("--observable", word))]
    line += ["--method", "peps", "--max-bond", 6, "--device", "cpu", "--threads", 1]
    done = mpirun(3, "-m", "tnplan", *line, "-o", tmp_path / "whole.json")
    assert done.returncode == 0, done.stderr
    output = ["-o", tmp_path / "out.json"]
    done = mpirun(3, SCRIPTS / "ask_a_rank.py", 2, 4, *line, *output)
    assert done.returncode == 143, done.stderr
    assert "stopped for SIGUSR1, with a checkpoint; continue with --resume" in done.stderr
    assert document_of(tmp_path / "out.json.ckpt")["done"] == 4
    done = mpirun(3, "-m", "tnplan", *line, *output, "--resume")
    assert done.returncode == 0, done.stderr
    whole, resumed = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("whole", "out"))
    for name in ("value", "error"):
        assert resumed[name] == whole[name]
    assert not (tmp_path / "out.json.ckpt").exists()


def test_a_rank_that_fails_while_it_sends_leaves_the_file_before(tmp_path: Path) -> None:
    output, sent = tmp_path / "out.json", PepsState.sent
    whole = asked(tmp_path / "whole.json", ranks=3)
    kept = interrupted(output, 4, ranks=3)
    content = kept.read_bytes()

    def failing(state: PepsState, site: int, tensor: Any, source: int, target: int) -> Any:
        if target == 0 and state.rank == source == 2:
            raise _InterruptedError
        return sent(state, site, tensor, source, target)

    with patch.object(PepsState, "sent", failing), pytest.raises(_InterruptedError):
        asked(output, ranks=3, resume=True)
    assert kept.read_bytes() == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.json.ckpt", "whole.json"]
    assert same(asked(output, ranks=3, resume=True), whole)


@pytest.mark.parametrize("ranks", [1, 2])
def test_checkpoints_of_other_questions_are_refused(tmp_path: Path, ranks: int) -> None:
    output = tmp_path / "out.json"
    kept = interrupted(output, 3, ranks=ranks)
    content = kept.read_bytes()
    with pytest.raises(tnplan.InputError, match="is the checkpoint of an interrupted job"):
        asked(output, ranks=ranks)
    others: list[dict[str, Any]] = [
        {"max_bond": 7},
        {"cutoff": 1e-5},
        {"precision": "fp32"},
        {"seed": 50_002},
    ]
    for options in others:
        with pytest.raises(tnplan.InputError, match="belongs to another job; resume with the circuit"):
            asked(output, resume=True, ranks=ranks, **options)
    changed(kept, version=1)
    with pytest.raises(tnplan.InputError, match=r"is tnplan\.peps\.checkpoint 1, not"):
        asked(output, resume=True, ranks=ranks)
    kept.write_bytes(content[:-100] + bytes([content[-100] ^ 1]) + content[-99:])
    with pytest.raises(tnplan.InputError, match="is damaged"):
        asked(output, resume=True, ranks=ranks)
    kept.write_bytes(content)
    asked(output, resume=True, ranks=ranks)
    assert not kept.exists()


@pytest.mark.parametrize("ranks", [1, 3])
def test_parts_that_do_not_fit_are_refused(tmp_path: Path, ranks: int) -> None:
    output = tmp_path / "out.json"
    kept = interrupted(output, 3, ranks=ranks)
    content, document = kept.read_bytes(), document_of(kept)
    documents = [
        {**document, "done": 0}, {**document, "done": 10**6}, {**document, "done": "1"},
        {**document, "first": [1]}, {**document, "fidelity": "a"},
    ]  # fmt: skip
    changes: list[dict[str, Any]] = [{"document": one} for one in documents]
    arrays = arrays_of(parted(content)[0])
    n_edges = len(arrays) - 9
    weights, tensor = arrays[0], arrays[n_edges]
    changes += [{"arrays": {0: array}} for array in (np.ones(0), weights[:, None], weights.astype(complex))]
    changes += [{"arrays": {0: np.append(weights, 0.1)}}, {"arrays": {0: np.nan * weights}}]
    changes += [
        {"arrays": {n_edges: array}}
        for array in (tensor[..., :1], tensor.astype(np.complex64), np.nan * tensor, tensor[None])
    ]
    for change in changes:
        kept.write_bytes(content)
        changed(kept, **change)
        with pytest.raises(tnplan.InputError, match="is damaged"):
            asked(output, resume=True, ranks=ranks)
    kept.write_bytes(content)
    asked(output, resume=True, ranks=ranks)


def test_changed_documents_are_refused_or_used(tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    kept, random = interrupted(output, 12), Random(0)
    content = kept.read_bytes()
    for _ in range(15):
        kept.write_bytes(mutated_document(content, random))
        with suppress(tnplan.InputError):
            asked(output, resume=True)
