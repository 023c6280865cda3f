"""Every wrong command line: status 2, one line with the place and the value, and no file touched."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support.bad_input import (
    QASM,
    QSIM,
    Spoil,
    cut,
    edit,
    make_folder,
    refused,
    swap,
    tensors,
    text,
)
from tests.support.networks import shown
from tests.support.robustness.checkpoint_files import sealed

Row = tuple[str, str, Spoil | None]

PLAN = "plan path.json --devices 4 -o out.json"
REPORT = "report path.json --devices 1,2 --hardware cpu --baseline-time 0 --html out.html"
SEARCH = "search net.json --unlimited --time 0.1 -o out.json"
SHOW = "show four.json --plot out.svg"
RUN = "execute four.json -o r.npy"
NETWORK = "network c.qsim -o n.json"
PROFILED = "plan path.json --hardware h.toml --devices 4 -o out.json"

# Every command that reads a file, and what kind of file it is.
READERS = {
    "plan BAD -o out.json": "json",
    "report BAD --devices 1 --hardware cpu --html out.html": "json",
    "search BAD --unlimited --time 0.1 -o out.json": "json",
    "search net.json --unlimited --time 0.1 --from BAD -o out.json": "json",
    "show BAD --plot out.svg": "json",
    "execute BAD -o r.npy": "json",
    "execute four.json --tensors BAD -o r.npy": "npz",
    "network BAD -o n.json": "qsim",
    "plan path.json --hardware BAD -o out.json": "toml",
}
NO_FILE = {
    "absent": ("No such file", None),
    "folder": ("directory", None),
    "old/x": ("Not a directory", None),
}
NOT_THAT_FILE = {
    "empty": ("", {"json": "not JSON", "npz": "no", "qsim": "not a number of qubits", "toml": "required "
    "field"}),
    "binary": (b"\0\xff\xfe", {"json": "not UTF-8", "npz": "no", "qsim": "not UTF-8", "toml": "not UTF-8"}),
    "half": ('{"a": ', {"json": "line 1 column 7", "npz": "no", "qsim": "not a number", "toml": "not TOML"}),
    "list": ("[1, 2]", {"json": "x", "npz": "no", "qsim": "is JSON, which", "toml": "not TOML"}),
    "deep": ("[" * 100_000, {"json": "nested too deep", "npz": "no", "qsim": "...", "toml": "not TOML"}),
    "digits": ("1" * 5000, {"json": "too many digits", "npz": "no", "qsim": "...", "toml": "not TOML"}),
    "other": ('{"format": "tnplan.result", "version": 1}',
              {"json": "'tnplan.result'", "npz": "no", "qsim": "is JSON, which", "toml": "not TOML"}),
}  # fmt: skip

# fmt: off
PATHS: list[tuple[str, object, str]] = [
    ("format", "x", "format: is 'x'"), ("format", None, "format: is missing"),
    ("version", 2, "version: is 2"), ("version", "1", "version: is '1'"), ("version", 1.0, "version: is 1.0"),
    ("version", True, "version: is True"), ("version", None, "version: is None"),
    ("inputs", None, "`inputs`"), ("output", None, "`output`"), ("size_dict", None, "`size_dict`"),
    ("ssa_path", None, "ssa_path: is missing"), ("extra", 1, "`extra`"),
    ("inputs.3.1", 1, "inputs[3][1]: Expected `str`, got `int`"), ("inputs", {}, "inputs: Expected `array`"),
    ("inputs.0", "ab", "inputs[0]: Expected `array`"), ("inputs", [], "inputs: there is no tensor"),
    ("output", "ae", "output: Expected `array`"), ("output.0", 3, "output[0]: Expected `str`"),
    ("output", ["z"], "index 'z' is on no tensor"), ("output", ["a", "a"], "index 'a' appears 2 times"),
    ("size_dict", [], "size_dict: Expected `object`"), ("size_dict.a", "4", "index 'a' has size '4'"),
    ("size_dict.a", 0, "index 'a' has size 0"), ("size_dict.a", -2, "index 'a' has size -2"),
    ("size_dict.a", 2.0, "index 'a' has size 2.0"), ("size_dict.a", True, "index 'a' has size True"),
    ("size_dict.a", 2**61 - 1, f"index 'a' has size {2**61 - 1}"), ("size_dict.a", None, "'a' has no size"),
    ("size_dict.z", "x", "index 'z' has size 'x'"), ("size_dict.a", 2**40, "step 0: its tensors take"),
    ("ssa_path", [[0, 1], [0, 2], [5, 3]], "ssa_path[1]: tensor 0 is used a second time"),
    ("ssa_path", [[0, 0], [4, 2], [5, 3]], "ssa_path[0]: tensor 0 is used a second time"),
    ("ssa_path", [[0, 1], [4, 2]], "2 tensors are left at its end (3, 5)"),
    ("ssa_path", [], "4 tensors are left"),
    ("ssa_path", [[0, 1], [], [4, 2], [6, 3]], "[1]: the step is empty"),
    ("ssa_path", [[0, 9], [4, 2], [5, 3]], "tensor 9 does not exist"),
    ("ssa_path", [[0, -1], [4, 2], [5, 3]], "tensor -1 does not exist"),
    ("ssa_path", "x", "ssa_path: Expected"), ("ssa_path.0.0", "0", "ssa_path[0][0]: Expected `int`"),
    ("ssa_path.0.0", 0.5, "ssa_path[0][0]: Expected `int`"),
    ("path", [[0, 1]], "path: is given together with ssa_path"),
    ("sliced_inds", ["z"], "'z' is on no tensor"),
    ("sliced_inds", ["d", "d"], "index 'd' stands twice"), ("sliced_inds", "d", "sliced_inds: Expected"),
    ("dtype", "int8", "dtype: 'int8' is unknown"), ("dtype", 3, "dtype: Expected `str`"),
    ("tensors", 5, "tensors: Expected"), ("name", 5, "name: Expected `str`"), ("meta", [], "meta: Expected"),
]
NETWORKS = [row for row in PATHS if row[0] not in ("ssa_path", "path", "sliced_inds", "ssa_path.0.0",
 "format")
            and row[1] != 2**40]

TENSORS: list[tuple[Spoil, str]] = [
    (tensors(t0=None), "t.npz: t0: is missing"), (tensors(t4=np.ones(2)), "t.npz: t4: is not a tensor"),
    (tensors(t1=np.ones((8, 4))), "t1: has shape (8, 4), the network says (8, 8)"),
    (tensors(t1=np.ones(64)), "t1: has shape (64,)"), (tensors(t1=np.full((8, 8), "x")), "t1: has dtype <U1"),
    (tensors(t1=np.full((8, 8), None)), "t1: cannot be read (Object arrays"),
    (tensors(t1=np.full((8, 8), 1e300)), "beyond the range"),
    (tensors(t1=np.zeros((8, 8), "M8[s]")), "dtype datetime64[s]"),
    (cut("t.npz", 0.5), "t.npz: is not an .npz file"), (cut("t.npz", 0.95), "t.npz: is not an .npz file"),
    (lambda folder: (folder / "t.npz").unlink(), "t.npz: cannot be read (No such file"),
]

# What somebody changed in a schedule, and whether the identity was put right afterwards.
SCHEDULES: list[tuple[str, object, bool, str]] = [
    ("ranks_per_group", 2, False, "four.json: identity:"), ("identity", "0", False, "identity: is 0..., but"),
    ("identity", None, False, "identity: is None"), ("predicted.peak_bytes", 1, False, "identity:"),
    ("version", 1, False, "version: is 1"), ("format", "tnplan.path", False, "format: is 'tnplan.path'"),
    ("once", None, True, "four.json: once: is not a list"), ("steps", None, True, "field `steps`"),
    ("ranks_per_group", 2, True, "four.json: schedule: the grid has 4 ranks, not 2"),
    ("once.0.op", "jump", True, "once[0] has no known op"),
    ("once.0.tensor", 9, True, "tensor 9 does not exist"),
    ("once.0.tensor", "0", True, "Expected `int`"), ("result", 99, True, "result 99 is not a buffer"),
    ("buffers.0.modes.0", 99, True, "buffers[0]: mode 99 does not exist"),
    ("buffers.0.layout", [], True, "buffers[0]: its layout"),
    ("grid.0.radix", 0, True, "the grid has 0 ranks"),
    ("buffers.0.partial", [7], True, "digit 7 does not exist"), ("modes.0.extent", -2, True, "extent -2"),
    ("size_dict.a", None, True, "'a' has no size"), ("indices.a", [99], True, "mode 99 does not exist"),
    ("indices.a", None, True, "index 'a' has no modes"), ("output", ["q"], True, "'q' is on no tensor"),
    ("sliced", ["q"], True, "sliced index 'q'"), ("leaves.0", ["q"], True, "index 'q' has no size"),
    ("modes.0.index", "q", True, "mode 0 does not belong to index 'q'"), ("profile", {}, True,
    "field `name`"),
    ("profile.tiers", [], True, "tiers: is empty"), ("steps.0.state", "x", True, "state 'x' is unknown"),
    ("steps.0.a_modes", [99], True, "mode 99"), ("steps.0.layout", [], True, "steps[0]: its layout"),
    ("precision", "fp9", True, "no precision 'fp9'"), ("memory_bytes", 1, True, "over its limit of 1"),
    ("threshold_bytes", 0, True, "threshold is 0"), ("predicted.slice_s", float("nan"), False, "not finite"),
]

PROFILES: list[tuple[str, str, str]] = [
    ("memory_bytes = 4_000_000_000\n", "", "field `memory_bytes`"),
    ("memory_bytes = 4_000_000_000", 'memory_bytes = "4"', "`$.memory_bytes`"),
    ("memory_bytes = 4_000_000_000", "memory_bytes = -4", "memory_bytes: is -4"),
    ("memory_bytes = 4_000_000_000", "memory_bytes = 4.5", "got `float`"),
    ("reserved_bytes = 0", "reserved_bytes = -1", "reserved_bytes: is -1"),
    ("reserved_bytes = 0", "reserved_bytes = 5_000_000_000", "is 5000000000 of 4000000000"),
    ("launch_s = 1e-5", "launch_s = -1.0", "launch_s: is -1.0"),
    ("memory_bytes_per_s = 10e9", "memory_bytes_per_s = nan", "memory_bytes_per_s: is nan"),
    ("memory_bytes_per_s = 10e9", "memory_bytes_per_s = inf", "memory_bytes_per_s: is inf"),
    ("latency_s = 2e-5", "latency_s = -1.0", "tier host memory: latency_s: is -1.0"),
    ("granule_bytes = 65_536", "granule_bytes = -1", "granule_bytes: is -1"),
    ("devices = 0", "devices = -1", "tier host memory: devices: is -1"),
    ("bytes_per_s = 3e9", "bytes_per_s = 0.0", "tier host memory: bytes_per_s: is 0.0"),
    ("bytes_per_s = 3e9", 'bytes_per_s = "3e9"', "tiers[0].bytes_per_s"),
    ("[flop_per_s.complex64]\nfp32 = 100e9", "[flop_per_s.complex64]\nfp32 = 0.0", "complex64.fp32: is 0.0"),
    ("[flop_per_s.complex64]\nfp32 = 100e9", "", "flop_per_s.complex64: has no precision 'fp32'"),
    ("tile_bytes = 1_048_576", "tile_bytes = 0", "tile_bytes: is 0"),
    ('name = "cpu"', 'name = "cpu"\ncolour = 1', "h.toml: colour: is not a field"),
    ('name = "cpu"', 'name = "cpu', "h.toml: not TOML"), ("[[tiers]]", "[[tears]]", "tears: is not a field"),
    ("devices = 0", "devices = 0\nlatency = 1", "tiers[0]: latency: is not a field"),
    ("devices = 0", "devices = 0\ncurve_bytes = [1, 2]", "has 2 points and 0 rates"),
    ("devices = 0", "devices = 0\ncurve_bytes = [2, 2]\ncurve_bytes_per_s = [1, 1]", "give rising points"),
    ("[[tiers]]", "[gemm_curves.complex64.fp32]\nk = []\nflop_per_s = []\n[[tiers]]", "has 0 points"),
    ("[[tiers]]", "[gemm_curves.complex64.fp32]\nk = [1]\nflop_per_s = [0]\n[[tiers]]",
     "complex64.fp32: is 0"),
]

CIRCUITS: list[tuple[str, str]] = [
    ("\n# nothing\n", "line 1: '' is not a number of qubits"), ("x\n", "'x' is not a number"),
    ("0\n", "'0' is not a number"),
    ("-1\n", "'-1' is no"), ("2 3\n", "'2 3' is no"), ("99999999999\n", "1 to 100000"),
    ("\u00b2\n", "is not a number"),
    ("2\n0 foo 0\n", "line 2: gate foo: is unknown"),
    ("2\n0 h 2\n", "gate h: '2' is not a qubit; use qubits 0 to 1"),
    ("2\n0 h -1\n", "'-1' is not a qubit"), ("2\n0 h\n", "gate h: has 0 numbers"),
    ("2\n0 h 0 1\n", "has 2 numbers"),
    ("2\n0 rz 0\n", "gate rz: has 1 numbers"), ("2\n0 rz 0 x\n", "the parameter 'x' is not a number"),
    ("2\n0 rz 0 nan\n", "parameter 'nan'"), ("2\n0 rz 0 1e400\n", "parameter '1e400'"),
    ("2\n0 cz 0 0\n", "names qubit 0 twice"), ("2\nx h 0\n", "'x h 0' is not a gate"),
    ("2\n0\n", "'0' is not a gate"),
    ("2\n0 h 0\n0 x 0\n", "line 3: gate x: time 0 on qubit 0"),
    ("2\n0 m 0\n1 h 0\n", "after its measurement"),
    ("2\n0 h " + "1" * 5000, "is not a qubit"),
]
QASMS: list[tuple[str, str]] = [
    ("", "c.qasm: circuit: has 0 qubits"), ("OPENQASM;\n", "c.qasm: line 1: is not OpenQASM"),
    ("OPENQASM 9.0;\nqreg q[2];\n", "line 1: is OpenQASM 9; write"),
    (QASM + "foo q[0];\n", "uses gate 'foo', which is not defined"),
    (QASM + "h q[2];\n", "line 6 (h): has index 2 in a register of 2"),
    (QASM + "rz q[1];\n", "line 6 (rz): has 0 angles; give 1"),
    (QASM + "reset q[1];\n", "c.qasm: line 6 (reset): is not a gate"),
    (QASM + "creg c[1];\nmeasure q[0]->c[0];\nx q[0];\n", "acts on qubit 0 after its measurement"),
    ("OPENQASM 3.0;\nqubit[2] q;\nfoo q[0];\n", "line 3 (foo): uses gate 'foo', which is not defined"),
]

USAGE: list[tuple[str, str]] = [
    ("nonsense", "'nonsense'"), ("workload nonsense", "'nonsense'"), ("plan", "Missing argument 'PATH'"),
    ("execute four.json one.json", "one.json"), ("plan path.json --colour", "'--colour'"),
    # kinds of files mixed up
    ("plan four.json -o out.json", "format: is 'tnplan.schedule'"),
    ("plan net.json -o out.json", "tnplan search"),
    ("show path.json", "format: is 'tnplan.path'"), ("execute path.json", "format: is 'tnplan.path'"),
    ("search four.json --unlimited -o out.json", "'tnplan.schedule'"), ("plan t.npz", "t.npz: is not UTF-8"),
    ("report four.json --devices 1 --hardware cpu", "'tnplan.schedule'"),
    ("search net.json --unlimited --from net.json -o out.json", "ssa_path: is missing"),
    # outputs
    ("plan path.json -o absent/out.json", "absent/out.json"),
    ("plan path.json -o folder", "folder: is a folder"),
    ("plan path.json -o old/x.json", "old/x.json"), ("plan path.json -o path.json", "path.json: is an input"),
    ("plan path.json -o s.npz", "s.npz: ends in .npz, and is written as JSON; let its name end in .json"),
    (SEARCH.replace("out.json", "s.npy"), "s.npy: ends in .npy, and is written as JSON"),
    ("plan path.json -o t.npz", "t.npz: is an input"), ("plan path.json -o .", ".: is a folder"),
    ("plan path.json --hardware h.toml -o ./folder/../h.toml", "h.toml: is an input"),
    ("show four.json --plot absent/x.svg", "absent/x.svg"),
    ("show four.json --plot four.json", "is an input"),
    (REPORT.replace("out.html", "absent/x"), "absent/x"),
    (REPORT.replace("out.html", "folder"), "is a folder"),
    (REPORT.replace("out.html", "out.pdf"), "out.pdf: does not end in .html"),
    (REPORT.replace("out.html", "path.json"), "is an input"),
    (SEARCH.replace("out.json", "folder"), "a folder"),
    (SEARCH.replace("out.json", "t.npz"), "is an input"),
    (SEARCH.replace("out.json", "absent/x"), "absent/x"),
    ("network c.qsim -o absent/n.json", "absent/n.json"), ("network c.qsim -o c.qsim", "c.qsim: is an input"),
    ("execute four.json -o absent/r.npy", "absent/r.npy"),
    ("execute four.json -o r.txt", "'r.txt' does not end"),
    ("execute four.json -o ''", "the path is empty"),
    ("execute four.json -o four.npy", "four.json: is an input and would be"),
    ("workload sycamore --cycles 1 -o absent/n.json", "absent/n.json"),
    ("workload sycamore --cycles 1 --qsim absent/c -o n.json", "absent/c"),
    # plan
    *[(f"{PLAN} --memory {size}", f"'{size}' is not a size") for size in
      ("0", "-5GiB", "nonsense", "nan", "inf", "1e9", "1XB", "0.1")],
    (f"{PLAN} --memory 1", "a limit of 1 B per rank"), ("plan path.json --memory 1KiB -o out.json",
    "1.75 KiB"),
    *[(f"{PLAN} --threshold {size}", f"'{size}' is not a size") for size in ("0", "unlimited", "x")],
    *[(f"plan path.json --devices {count} -o out.json", count) for count in
      ("0", "-1", "abc", "1.5", "1,2", "99999999999")],
    (f"{PLAN} --ranks-per-group 8", "--ranks-per-group: is 8"),
    (f"{PLAN} --ranks-per-group 0", "'--ranks-per"),
    (f"{PLAN} --hardware nonsense", "'nonsense' is not a profile"),
    (f"{PLAN} --hardware ''", "the path is empty"),
    (f"{PLAN} --precision fp8", "no precision 'fp8'"), (f"{PLAN} --precision ''", "no precision ''"),
    (f"{PLAN} --policy x", "'x' is not one of 'ours', 'paper'"),
    # report
    *[(f"report path.json --hardware cpu --devices '{counts}'", problem) for counts, problem in
      (("8,4,,", "'' in '8,4,,'"), ("0", "'0'"), ("abc", "'abc'"), ("1,...", "ends in dots"), ("", "''"),
       ("999999999", "999999999 is not a number"))],
    ("report path.json --devices 1,2", "Missing option '--hardware'"), (f"{REPORT} --precision fp8", "'fp8'"),
    (f"{REPORT} --baseline-time -1", "--baseline-time"), (f"{REPORT} --baseline-time nan", "--baseline-time"),
    (f"{REPORT} --baseline new.json", "--baseline: new.json: does not exist, and no path is searched for"),
    (f"{REPORT} --baseline path.json", "--baseline: is not the path of an earlier report"),
    (f"{REPORT} --baseline net.json", "net.json"), (f"{REPORT} --baseline folder", "folder: is a folder"),
    (f"{REPORT} --baseline out.html", "out.html: is an input"),
    (f"{REPORT} --baseline x.npz", "x.npz: ends in"),
    (f"{REPORT} --hardware dgx-h100 --baseline path.json",
    "--baseline: is the path of one network on one profile"),
    (f"{REPORT} --memory 1KiB", "--memory: no path fits on 1, 2 devices"), (f"{REPORT} --threshold 0", "'0'"),
    ("report path.json absent --devices 1 --hardware cpu", "absent: cannot be read"),
    ("show four.json --top 0", "0 is not in the range"),
    # execute
    *[(f"execute four.json -o r.npy --ranks {ranks}", problem) for ranks, problem in
      (("3", "3 ranks are not a multiple of the schedule's group of 4"), ("0", "0 is not in"), ("x", "'x'"),
       ("100000000", "--ranks: is 100000000"))],
    *[(f"execute four.json -o r.npy --slices '{slices}'", f"--slices: {problem}") for slices, problem in
      (("5:2", "5:2 selects none of the 2 slices"), ("0:999999", "0:999999 selects"), ("1",
      "'1' is not a range"),
       ("1:1", "1:1"), ("-1:1", "'-1:1' is not"), ("a:b", "'a:b'"), ("", "''"),
       ("0:" + "9" * 5000, "'0:99"))],
    (f"{RUN} --device tpu", "'tpu'"), (f"{RUN} --threads 0", "0 is not in"),
    (f"{RUN} --result both", "'both'"),
    ("execute four.json --resume", "--resume: has no checkpoint"),
    ("execute four.json --result sharded", "--result"),
    # search
    ("search net.json", "give one limit"), ("search net.json --devices 4", "belong together"),
    ("search net.json --devices 4 --hardware cpu --max-tensor 4 --unlimited", "give one limit"),
    ("search net.json --devices 4 --hardware x -o out.json", "--hardware: 'x'"),
    *[(f"search net.json --max-tensor {count}", f"'{count}' is not a count") for count in ("0", "-4", "x",
     "2^999")],
    ("search net.json --max-tensor 8 --method greedy -o out.json", "is 8, but the result itself has 16"),
    *[(f"search net.json --unlimited -o out.json --time {time}", problem) for time, problem in
      (("-1", "-1.0"), ("inf", "inf is not in"), ("nan", "nan"), ("x", "'x'"))],
    (f"{SEARCH} --seed -1", "-1 is not"), (f"{SEARCH} --workers 0", "0 is not"),
    (f"{SEARCH} --dtype int8", "int8"),
    (f"{SEARCH} --minimize x", "'x' is not"), (f"{SEARCH} --method x", "'x' is not one of"),
    # network and workload
    (f"{NETWORK} --amplitude 0", "--amplitude: has 1 characters; give one character for each of 2 qubits"),
    (f"{NETWORK} --amplitude 000", "has 3 characters"), (f"{NETWORK} --amplitude ''", "has 0 characters"),
    (f"{NETWORK} --amplitude 0x", "--amplitude: has the character 'x'"),
    (f"{NETWORK} --open 2", "names qubit 2"),
    (f"{NETWORK} --open 0,0", "names qubit 0 twice"), (f"{NETWORK} --open x", "'x' names no qubits"),
    (f"{NETWORK} --open -1", "'-1'"), (f"{NETWORK} --open 0 --amplitude 00", "is given together with --open"),
    (f"{NETWORK} --dtype float32", "'float32' is not"), ("workload sycamore --cycles 0", "0 is not in"),
    ("workload sycamore --cycles 1 --amplitude 01 -o n.json", "has 2 characters; give one character"),
    ("workload peps --rows 1", "1 is not in"), ("workload peps --open -1", "-1 is not in"),
    ("workload peps --rows 2 --columns 2 --hyper 2 -o n.json", "--hyper: is 2"),
    ("workload regular --tensors 5 --degree 3 -o n.json", "--degree: 3 on 5 tensors makes no graph"),
    ("workload regular --tensors 60 --degree 20 -o n.json", "--degree: is 20; give a degree up to 6"),
]
# fmt: on

IDENTITY = {"schedule": "another"}
CHECKPOINT = sealed(b"", {"format": "tnplan.checkpoint", "version": 5, "identity": IDENTITY, "place": {}})
OLD = b'{"format": "tnplan.checkpoint", "version": 4, "schedule": "another"}'


def rows() -> list[Row]:
    """The whole table: a command line, what the line must say, and what was done to the files before."""
    table: list[Row] = [(line, says, None) for line, says in USAGE]
    for line, kind in READERS.items():
        table += [(line.replace("BAD", name), says, spoil) for name, (says, spoil) in NO_FILE.items()]
        for content, says_by_kind in NOT_THAT_FILE.values():
            table.append((line.replace("BAD", "x"), says_by_kind[kind], text("x", content)))
    for place, value, says in PATHS:
        table.append((PLAN, says, edit("path.json", place, value)))
    for place, value, says in NETWORKS:
        table.append((SEARCH.replace("net.json", "path.json"), says, edit("path.json", place, value)))
    table += [(RUN, says, spoil) for spoil, says in TENSORS]
    for place, value, sign, says in SCHEDULES:
        spoil = edit("four.json", place, value, sign=sign)
        table += [(RUN, says, spoil), (SHOW, says, spoil)]
    table.append((SHOW, "four.json: line 1 column", cut("four.json")))
    table += [(PROFILED, says, swap("h.toml", old, new)) for old, new, says in PROFILES]
    table += [(NETWORK, says, text("c.qsim", content)) for content, says in CIRCUITS]
    kept = "r.npy.ckpt"
    table += [
        (f"{RUN} --resume", f"{kept}/manifest.json: schedule: is 'another'", checkpoint(CHECKPOINT)),
        (f"{RUN} --resume", f"{kept}/manifest.json: is damaged, or of another version", checkpoint(OLD)),
        (RUN, f"{kept}: holds the checkpoint of an interrupted run", checkpoint(CHECKPOINT)),
        (RUN, f"{kept}: is a file, not a folder", text(kept, "x")),
        (RUN, f"{kept}/manifest.json: is a folder", folders(f"{kept}/manifest.json")),
        (RUN, "r.json: would be replaced", text("r.json", "x")),
        (f"{RUN} --result sharded", "r.shards.json: would be replaced", text("r.shards.json", "{}")),
    ]
    return table


def checkpoint(manifest: bytes) -> Spoil:
    """A folder with a partial sum and this manifest."""

    def spoil(folder: Path) -> None:
        (folder / "r.npy.ckpt").mkdir()
        (folder / "r.npy.ckpt" / "rank0.0.1.npy").write_text("")
        (folder / "r.npy.ckpt" / "manifest.json").write_bytes(manifest)

    return spoil


def folders(name: str) -> Spoil:
    """A folder of this name, and those that it is in."""
    return lambda folder: (folder / name).mkdir(parents=True)


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    make_folder(folder)
    return folder


@pytest.fixture
def folder(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the good files, which is the current folder."""
    here = tmp_path / "here"
    shutil.copytree(good, here)
    monkeypatch.chdir(here)
    return here


@pytest.mark.parametrize(("line", "says", "spoil"), rows(), ids=shown)
def test_a_refusal_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], line: str, says: str, spoil: Spoil | None
) -> None:
    if spoil is not None:
        spoil(folder)
    refused(capsys, line, says)


@pytest.mark.parametrize(("content", "says"), QASMS)
def test_a_wrong_openqasm_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], content: str, says: str
) -> None:
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    (folder / "c.qasm").write_text(content)
    refused(capsys, "network c.qasm -o n.json", says)


@pytest.mark.skipif(os.getuid() == 0, reason="root may read and write everything")
@pytest.mark.parametrize(
    "line", [*READERS, "plan path.json -o closed/out.json", "execute one.json -o closed/r.npy"]
)
def test_rights_are_respected(folder: Path, capsys: pytest.CaptureFixture[str], line: str) -> None:
    (folder / "closed").mkdir(mode=0o500)
    shutil.copy(folder / "path.json", folder / "secret")
    (folder / "secret").chmod(0o200)
    line = line.replace("BAD", "secret")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.support.bad_input.snapshot", lambda _: {})
        refused(capsys, line, "secret" if "secret" in line else "closed")


@pytest.mark.parametrize(
    "line", [PLAN, REPORT, SEARCH, f"{SEARCH} --time 0", SHOW, "execute four.json", NETWORK, PROFILED]
)
def test_the_unspoiled_files_are_accepted(folder: Path, line: str) -> None:
    from tnplan.cli.main import run

    assert (folder / "c.qsim").read_text() == QSIM
    assert run(line.split()) == 0


def test_brackets_in_names_are_no_markup(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tnplan.cli.main import run

    for place, value in (
        ("name", "[/x]"),
        ("inputs.0.0", "[/a]"),
        ("output.0", "[/a]"),
        ("size_dict.[/a]", 4),
    ):
        edit("path.json", place, value)(folder)
    shutil.copy(folder / "path.json", folder / "[red]path.json")
    assert run(["plan", "[red]path.json", "--threshold", "1", "-o", "[b]out.json"]) == 0
    assert "wrote [b]out.json" in capsys.readouterr().out
    assert run(["show", "[b]out.json"]) == 0
    assert "[/a]" in capsys.readouterr().out
    assert run(["report", "[red]path.json", "--devices", "1,2", "--hardware", "cpu"]) == 0
