"""Circuits by PEPS that are interrupted and resumed: the same bits, and refusals of what does not fit."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import networkx as nx
import numpy as np
import pytest

import tnplan
from tests.support.circuit_families import brickwork
from tests.support.robustness.checkpoint_files import changed, document_of, mutated_document
from tnplan.circuits.circuit import GateSequence
from tnplan.executor.peps import checkpoint as peps_checkpoint

WORDS = ["Z0", "X1 Z4"]


class _InterruptedError(Exception):
    pass


@pytest.fixture(autouse=True)
def _write_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peps_checkpoint.PepsCheckpoint, "LEAST_S", 0.0)
    monkeypatch.setattr(peps_checkpoint.PepsCheckpoint, "INTERVAL", 0)


def circuit(seed: int) -> tnplan.Circuit:
    graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 3))
    gates = brickwork(9, [*graph.edges], 8, np.random.default_rng(seed))
    return tnplan.Circuit(GateSequence(9, tuple(gates)))


def asked(output: Path, seed: int = 50_001, **options: Any) -> tnplan.CircuitAnswer:
    options = {"max_bond": 6, "device": "cpu", "threads": 1, "ranks": 1, **options}
    return circuit(seed).expectation(WORDS, method="peps", output=output, **options)


def interrupted(output: Path, writes: int, **options: Any) -> Path:
    """The checkpoint of a job that broke after so many writes."""
    write, count = peps_checkpoint.PepsCheckpoint.write, 0

    def written(self: Any, *arguments: Any) -> None:
        nonlocal count
        write(self, *arguments)
        count += 1
        if count == writes:
            raise _InterruptedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peps_checkpoint.PepsCheckpoint, "write", written)
        with pytest.raises(_InterruptedError):
            asked(output, **options)
    return output.parent / f"{output.name}.ckpt"


@pytest.mark.parametrize("precision", ["fp64", "fp32"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.6, 0.95])
def test_a_resumed_question_has_the_bits_of_an_uninterrupted_one(
    tmp_path: Path, precision: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, write = 0, peps_checkpoint.PepsCheckpoint.write

    def counted(self: Any, *arguments: Any) -> None:
        nonlocal count
        count += 1
        write(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peps_checkpoint.PepsCheckpoint, "write", counted)
        whole = asked(tmp_path / "whole.json", precision=precision)
    output = tmp_path / "out.json"
    kept = interrupted(output, int(share * count), precision=precision)
    document = document_of(kept)
    assert (document["first"] is None) == (share <= 0.5)
    applied, apply = 0, peps_checkpoint.PepsState.apply

    def counting(*arguments: Any) -> None:
        nonlocal applied
        applied += 1
        apply(*arguments)

    monkeypatch.setattr(peps_checkpoint.PepsState, "apply", counting)
    resumed = asked(output, precision=precision, resume=True)
    assert applied == count - int(share * count)
    assert not kept.exists()
    assert resumed.value.tobytes() == whole.value.tobytes()
    assert resumed.error.tobytes() == whole.error.tobytes()
    assert resumed.details == whole.details


def test_checkpoints_of_other_questions_are_refused(tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    kept = interrupted(output, 3)
    content = kept.read_bytes()
    with pytest.raises(tnplan.InputError, match="is the checkpoint of an interrupted job"):
        asked(output)
    others: list[dict[str, Any]] = [
        {"max_bond": 7},
        {"cutoff": 1e-5},
        {"precision": "fp32"},
        {"seed": 50_002},
    ]
    for options in others:
        with pytest.raises(tnplan.InputError, match="belongs to another job; resume with the circuit"):
            asked(output, resume=True, **options)
    with pytest.raises(tnplan.InputError, match=r"resume: is for one rank with 'peps', and there are 2"):
        asked(output, resume=True, ranks=2)
    assert kept.read_bytes() == content


def test_parts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    kept = interrupted(output, 3)
    content, document = kept.read_bytes(), document_of(kept)
    bonds = document["bonds"]
    documents = [
        {**document, "done": 0}, {**document, "done": 10**6}, {**document, "done": "1"},
        {**document, "bonds": bonds[1:]}, {**document, "bonds": [bonds[0] + 1, *bonds[1:]]},
        {**document, "first": [1]}, {**document, "fidelity": "a"},
    ]  # fmt: skip
    changes: list[dict[str, Any]] = [{"document": one} for one in documents]
    changes += [{"arrays": {0: np.zeros(3, complex)}}, {"arrays": {1: np.full(sum(bonds), np.nan)}}]
    for change in changes:
        kept.write_bytes(content)
        changed(kept, **change)
        with pytest.raises(tnplan.InputError, match="is damaged"):
            asked(output, resume=True)


def test_changed_documents_are_refused_or_used(tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    kept, random = interrupted(output, 12), Random(0)
    content = kept.read_bytes()
    for _ in range(15):
        kept.write_bytes(mutated_document(content, random))
        with suppress(tnplan.InputError):
            asked(output, resume=True)
