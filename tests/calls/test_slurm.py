"""Job scripts from plans: nodes and ranks, the time limit, what is refused."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import tnplan

CHAIN = tnplan.Network((("a", "b"), ("b", "c"), ("c",)), ("a",), {"a": 64, "b": 64, "c": 16})
PATH = tnplan.ContractionPath(CHAIN, ((0, 1), (2, 3)), sliced_inds=("c",))


def planned(hardware: str = "dgx-h100", devices: int = 8, ranks: int = 2) -> tnplan.Schedule:
    return tnplan.plan(PATH, hardware=hardware, devices=devices, ranks_per_group=ranks)


def asked(script: tnplan.JobScript) -> dict[str, str]:
    """The options of the script."""
    return dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", script.text, re.MULTILINE))


@pytest.mark.parametrize(
    ("hardware", "devices", "options", "nodes", "each"),
    [
        ("dgx-h100", 8, {}, 1, 8),
        ("dgx-h100", 16, {}, 2, 8),
        ("dgx-h100", 16, {"per_node": 4}, 4, 4),
        ("dgx-h100", 12, {}, 2, 6),
        ("gb200-nvl72", 16, {}, 4, 4),
        ("dgx-h100", 16, {"devices": 4}, 1, 4),
    ],
)
def test_nodes(hardware: str, devices: int, options: dict[str, int], nodes: int, each: int) -> None:
    script = tnplan.slurm(planned(hardware, devices), **options)  # type: ignore[arg-type]
    assert (script.nodes, script.ranks_per_node) == (nodes, each)
    assert asked(script)["nodes"] == str(nodes)
    assert asked(script)["gpus-per-node"] == asked(script)["ntasks-per-node"] == str(each)


def test_a_cpu_asks_for_no_gpu() -> None:
    script = tnplan.slurm(planned("cpu", 4))
    assert "gpus-per-node" not in asked(script)
    assert "--device cpu --resume" in script.text


def test_groups_without_work_get_no_devices() -> None:
    assert tnplan.slurm(planned(devices=64)).ranks_per_node * tnplan.slurm(planned(devices=64)).nodes == 32


def test_the_limit_is_twice_the_prediction_and_ten_minutes() -> None:
    plan = planned()
    slow = replace(plan, predicted=replace(plan.predicted, once_s=3600.0))
    assert asked(tnplan.slurm(slow))["time"] == "02:11:00"


def test_the_script_is_shell(tmp_path: Path) -> None:
    """Names with blanks stay one word."""
    file = tmp_path / "job.sh"
    tnplan.slurm(planned(), setup="export A=1; true", result="my result.npy", output=file)
    assert subprocess.run(["bash", "-n", str(file)], check=False).returncode == 0
    assert "-o 'my result.npy'" in file.read_text()


def test_show_and_plan_name_the_same_groups(tmp_path: Path) -> None:
    plan = planned()
    assert plan.devices == 8
    tnplan.plan(PATH, hardware="dgx-h100", devices=8, ranks_per_group=2, output=tmp_path / "s.json")
    shown = tnplan.show(tmp_path / "s.json")
    assert "4 groups of 2" in str(shown)
    assert shown.document["n_groups"] == 4
    assert shown.schedule == plan
    assert shown.schedule.identity == planned(devices=16).identity == plan.identity


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"devices": 1}, "devices: is 1, and a group has 2 ranks"),
        ({"per_node": 0}, "per_node: is 0"),
        ({"launcher": "lam"}, "launcher: 'lam' is unknown"),
        ({"device": "tpu"}, "device: 'tpu' is unknown"),
        ({"setup": 3}, "setup: is 3"),
    ],
)
def test_what_is_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(tnplan.InputError, match=re.escape(says)):
        tnplan.slurm(planned(), **options)  # type: ignore[arg-type]
