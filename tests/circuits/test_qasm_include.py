"""What OpenQASM files read with `include`: files below their folder, and below folders that are named."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import tnplan
from tests.support.qasm_programs import parse_qasm
from tnplan.circuits.qasm.read import parse_qasm_program
from tnplan.circuits.qasm.source import FOLDERS_VARIABLE
from tnplan.common.errors import InputError

pytest.importorskip("openqasm3")

HEADS = {
    2: 'OPENQASM 2.0;\ninclude "qelib1.inc";\nqreg q[2];\n',
    3: 'OPENQASM 3.0;\ninclude "stdgates.inc";\nqubit[2] q;\n',
}
HEAD3 = HEADS[3]


def test_included_files_lie_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "deep.inc").write_text("gate deep a { x a; }\n\nh q[9];\n")
    (tmp_path / "more.inc").write_text('include "inner/deep.inc";\n')
    place = str(tmp_path / "c.qasm")
    text = HEAD3 + 'include "more.inc";\n'
    deep = tmp_path / "inner" / "deep.inc"
    with pytest.raises(InputError) as caught:
        parse_qasm(text, place, tmp_path)
    assert str(caught.value) == f"{deep}: line 3 (h): has index 9 in a register of 2; use 0 to 1"
    deep.write_text("gate deep a { x a; }\n")
    assert [gate.name for gate in parse_qasm(text + "deep q;", place, tmp_path).gates] == ["deep", "deep"]
    deep.write_text("gate deep a { ry(1 / 0) a; }\n")
    with pytest.raises(InputError, match=r"deep\.inc: line 1 \(ry\): divides by 0"):
        parse_qasm(text + "deep q;", place, tmp_path)
    (tmp_path / "more.inc").write_text('include "more.inc";\n')
    with pytest.raises(InputError, match=r"more\.inc: line 1: includes 'more\.inc' inside 16 others"):
        parse_qasm(text, place, tmp_path)
    with pytest.raises(InputError, match=r"c\.qasm: line 4: includes 'none\.inc', .*put that file into"):
        parse_qasm(HEAD3 + 'include "none.inc";', place, tmp_path)


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """A folder of circuits beside one of others; each has gates.inc, whose gate has the folder's name."""
    for name in ("own", "own/below", "others", "named", "named/below"):
        (tmp_path / name).mkdir()
        gate = name.replace("/", "_")
        (tmp_path / name / "gates.inc").write_text(f"gate {gate} a {{ x a; }}\n")
    links = {"file.inc": "others/gates.inc", "folder": "others", "good.inc": "own/gates.inc"}
    for link, target in links.items():
        (tmp_path / "own" / link).symlink_to(tmp_path / target)
    (tmp_path / "named" / "out.inc").symlink_to(tmp_path / "others" / "gates.inc")
    return tmp_path


def read(places: Path, version: int, name: object, gate: str) -> list[str]:
    """The gates of a circuit that includes a file and has one of its gates."""
    circuit = places / "own" / "c.qasm"
    circuit.write_text(f'{HEADS[version]}include "{name}";\n{gate} q[0];\n')
    return [one.name for one in tnplan.load_circuit(circuit).gates]


@pytest.mark.parametrize("version", HEADS)
def test_files_elsewhere_are_not_read(places: Path, version: int) -> None:
    for name, gate in (("gates.inc", "own"), ("below/gates.inc", "own_below"), ("good.inc", "own")):
        assert read(places, version, name, gate) == [gate]
    for name in (
        "../others/gates.inc", places / "others" / "gates.inc", "below/../../others/gates.inc", "file.inc",
        "folder/gates.inc", "../nowhere.inc", "/dev/stdin", "/etc/passwd", "..",
    ):  # fmt: skip
        with pytest.raises(
            InputError, match=r"line 4: includes .* outside of .*TNPLAN_INCLUDE_PATH"
        ) as caught:
            read(places, version, name, "others")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("version", HEADS)
def test_folders_that_are_named_are_read(places: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDERS_VARIABLE, f"{places / 'nowhere'}:{places / 'named'}")
    assert read(places, version, "gates.inc", "own") == ["own"]  # the circuit's own folder comes first
    (places / "own" / "gates.inc").unlink()
    assert read(places, version, "gates.inc", "named") == ["named"]
    for name in ("../named/below/gates.inc", places / "named" / "below" / "gates.inc"):
        assert read(places, version, name, "named_below") == ["named_below"]
    for name in ("out.inc", "../others/gates.inc"):
        with pytest.raises(InputError, match="outside of the circuit's folder"):
            read(places, version, name, "others")


def test_a_file_that_is_included_may_read_no_more(places: Path) -> None:
    (places / "own" / "below" / "more.inc").write_text('include "../gates.inc";\n')
    (places / "own" / "below" / "again.inc").write_text('include "gates.inc";\n')
    with pytest.raises(InputError, match=r"more\.inc: line 1: includes '\.\./gates\.inc', which is outside"):
        read(places, 3, "below/more.inc", "own")
    assert read(places, 3, "below/again.inc", "own_below") == ["own_below"]


def test_a_circuit_that_is_no_file_includes_none(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(places / "own")
    text = HEAD3 + 'include "gates.inc";\nown q[0];'
    for parse in (parse_qasm, parse_qasm_program):
        with pytest.raises(InputError, match=r"includes 'gates\.inc', but this text is not in a folder"):
            parse(text, "a circuit")
    monkeypatch.setenv(FOLDERS_VARIABLE, str(places / "own"))
    assert [one.name for one in parse_qasm(text, "a circuit").gates] == ["own"]


def test_no_random_name_leads_out(places: Path) -> None:
    """Steps up, down, and through links: what is read lies below the folder, as the system sees it."""
    random = Random(5)
    steps = ("..", ".", "below", "folder", "own", "others", "named", "gates.inc", "file.inc", "good.inc", "")
    own, n_read = (places / "own").resolve(), 0
    for _ in range(100):
        name = "/".join(random.choices(steps, k=random.randrange(1, 5)))
        target = (places / "own" / name).resolve()
        try:
            read(places, 3, name, "own_below" if target.parent.name == "below" else "own")
        except InputError:
            continue
        assert target.is_relative_to(own)
        n_read += 1
    assert n_read > 3
