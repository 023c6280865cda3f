"""Files of strings: lines with comments and weights, counts as JSON, arrays; what is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.engines.sbd import every_string, random_integrals
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.space import choose_space
from tnplan.executor.sbd.basis.string_files import read_spin_strings

N = 4
COUNTS = {"0011": 5, "0101": 9, "1100": 5}
ORDER = [0b0101, 0b0011, 0b1100]
SAMPLES = {"0110" + "0011": 4, "0110" + "0101": 6, "1100" + "0011": 1, "1110" + "0011": 7, "0011" + "0111": 2}
"""Beta's bits on the left."""


def integers(path: Path, spin: int = 0, counts: tuple[int, int] = (2, 2)) -> list[int]:
    return read_spin_strings(path, N, counts, spin).strings.words[:, 0].tolist()


def bits_of(texts: Any) -> np.ndarray:
    return np.array([[character == "1" for character in text] for text in texts])


def test_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("# of weight\n0011 2 # two\n0101, 9\n\n1100:5\n0011 3\n0110 0\n")
    assert integers(tmp_path / "a.txt") == ORDER
    (tmp_path / "a.txt").write_text("1100\n0011\n1100\n0101\n")
    assert integers(tmp_path / "a.txt") == [0b1100, 0b0011, 0b0101]


@pytest.mark.parametrize(
    "document", [COUNTS, {"counts": COUNTS}, {"00 11": 5, "01 01": 9.0, "1100": 5}, {**COUNTS, "1010": 0}]
)
def test_counts(tmp_path: Path, document: Any) -> None:
    path = tmp_path / "counts.json"
    path.write_text(json.dumps(document))
    assert integers(path) == ORDER
    path.write_text(json.dumps(["0101", "0011", "1100", "0011"]))
    assert integers(path) == [0b0011, 0b0101, 0b1100]


def test_arrays(tmp_path: Path) -> None:
    path = tmp_path / "s.npz"
    np.savez(path, bitstring_matrix=bits_of(COUNTS), probabilities=[0.2, 0.5, 0.2])
    assert integers(path) == ORDER
    np.savez(path, strings=bits_of(COUNTS).astype(int))
    assert integers(path) == [0b0011, 0b0101, 0b1100]
    np.savez(path, ci_strs_a=[3, 5], ci_strs_b=[12, 10], amplitudes=np.eye(2))
    assert integers(path) == [3, 5]
    assert integers(path, 1) == [12, 10]


def test_samples_of_both_spins(tmp_path: Path) -> None:
    """Samples of other electrons are left out and said; of like spins all strings serve both."""
    path = tmp_path / "counts.json"
    path.write_text(json.dumps(SAMPLES))
    np.savez(tmp_path / "s.npz", samples=bits_of(SAMPLES), counts=list(SAMPLES.values()))
    (tmp_path / "s.txt").write_text("".join(f"{key} {value}\n" for key, value in SAMPLES.items()))
    hexadecimal = {hex(int(key, 2)): value for key, value in SAMPLES.items()}
    (tmp_path / "hex.json").write_text(json.dumps(hexadecimal))
    for name in ("counts.json", "s.npz", "s.txt", "hex.json"):
        assert integers(tmp_path / name) == [0b0101, 0b0011]
        assert integers(tmp_path / name, 1) == [0b0110, 0b1100]
        assert read_spin_strings(tmp_path / name, N, (2, 2), 0).left_out == 9
    space = choose_space(random_integrals(N, 2, 2, 1), path, None, None)
    assert (space.shape, space.left_out) == ((4, 4), 9)
    open_shell = choose_space(random_integrals(N, 2, 3, 1), path, None, None)
    assert open_shell.shape == (1, 1)
    assert choose_space(random_integrals(N, 2, 0, 1), every_string(N, 2), None, None).shape == (6, 1)


# fmt: off
BAD_FILES: list[Row] = [
    (("a.json", {"0011": -1}), "a.json: key '0011'", "has the weight -1", "give a number of 0 or"),
    (("a.json", {"0011": "x"}), "a.json: key '0011'", "has the weight 'x'", "give a number of 0 or"),
    (("a.json", {"0011": True}), "a.json: key '0011'", "has the weight True", "give a number of 0 or"),
    (("a.json", {"0111": 1}), "a.json: key '0111'", "fills 3 orbitals, not 2", "give strings of the"),
    (("a.json", {"011": 1}), "a.json: key '011'", "'011' is not a string of", "write one bitstring per"),
    (("a.json", 3), "a.json", "is neither an object of counts", 'write {"0011": 12}'),
    (("a.json", {}), "a.json", "holds no string", "give at least one"),
    (("a.json", {"00000011": 2}), "a.json",
     "holds no sample of 2 alpha and 2 beta electrons", "give samples with"),
    (("a.npz", {"x": [1]}), "a.npz", "holds x", "give an .npz with an array named bitstrings"),
    (("a.npz", {"bitstrings": [[0, 2, 1, 1]]}), "a.npz: bitstrings",
     "holds other values than 0 and 1", "give an .npz with an"),
    (("a.npz", {"bitstrings": [[0, 1, 1]]}), "a.npz: bitstrings",
     "has the shape (1, 3)", "give 4 or 8 columns"),
    (("a.npz", {"bitstrings": [[0, 0, 1, 1]], "weights": [1, 2]}), "a.npz: weights",
     "has the shape", "give a number for each"),
    (("a.npz", {"bitstrings": [[0, 0, 1, 1]], "weights": [-1.0]}), "a.npz: weights",
     "holds a weight below 0", "give numbers of 0 or"),
    (("a.npz", {"ci_strs_a": [16]}), "a.npz: ci_strs_a",
     "has strings beyond 4 orbitals", "give an .npz with an"),
]
# fmt: on


@table(BAD_FILES)
def test_bad_files(refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name, content = refusal.given
    if name.endswith(".npz"):
        np.savez(name, **content)
    else:
        Path(name).write_text(json.dumps(content))
    refusal.raised_by(lambda: read_spin_strings(name, N, (2, 2), 0))


def test_missing_files_are_said(tmp_path: Path) -> None:
    for name in ("none.txt", "none.json", "."):
        with pytest.raises(InputError, match="cannot be read"):
            read_spin_strings(tmp_path / name, N, (2, 2), 0)
