"""Commands that are a call and its report. Those with more of their own have files of their own."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import click

from tnplan.cli.from_signature import Call, command
from tnplan.cli.option_types import BITS, FILE, PROFILE, QUBITS
from tnplan.cli.terminal import ProgressLines, say, say_once, say_progress, say_result

SHOWN_STEPS = 6


@command(
    "network.network",
    open_qubits={"flags": ["--open"], "type": QUBITS},
    simplify={
        "flags": ["--no-simplify"], "flag_value": False, "show_default": False,
        "help": "Keep one tensor per gate.",
    },
    output="Network file; its tensors go beside it. Default: CIRCUIT.json, here.",
)  # fmt: skip
def network(call: Call, circuit: Path, output: Path | None, **options: Any) -> None:
    """CIRCUIT is a qsim or OpenQASM file. The network is that of one amplitude <BITS| circuit |0...0>, or of
    all amplitudes of the open qubits, rank-simplified: tensors that cost nothing to contract are contracted.
    """
    from tnplan.planner.networks.tensors import tensors_beside

    target = output or Path(f"{circuit.stem}.json")
    result = call(circuit, output=target, **options)
    counts = ", ".join([*result.notes, result.network.sizes])
    say(f"wrote {target} and {tensors_beside(target).name}: {counts}")


@command(
    "plan.plan",
    path=click.argument("path", type=FILE, metavar="PATH"),
    ranks_per_group={"type": click.IntRange(1)},
    output="Default: NAME.schedule.json, here.",
)
def plan(call: Call, path: Path, devices: int, output: Path | None, as_json: bool, **options: Any) -> None:
    """PATH is a path.json, or another file that holds a network with a path: docs/reference/formats.md lists
    them. The schedule goes to --output, and with it the tensors where PATH itself carries values.
    """
    from rich.text import Text

    from tnplan.calls.plan import seen_from
    from tnplan.reporting import json_documents as documents
    from tnplan.reporting import tables
    from tnplan.reporting.chain import largest, use_chain

    name = path.name.removesuffix(".json")
    target = output or Path(f"{name}.schedule.json")
    with tables.console(stderr=True).status(Text(f"planning {name} for {devices} devices")):
        schedule = seen_from(target.parent, call(path, devices=devices, output=target, **options))
    if as_json:
        say(json.dumps({**documents.schedule_document(schedule, devices), "schedule": str(target)}))
        return
    console = tables.console()
    console.print(
        tables.facts_table(
            f"{path} for {devices} device{'s' if devices > 1 else ''}", tables.plan_facts(schedule, devices)
        )
    )
    chain = largest(use_chain(schedule), SHOWN_STEPS)
    if chain:
        console.print()
        console.print(tables.steps_table(schedule, chain, "The large steps that take longest"))
    say(f"wrote {target}")


@command("show.show", top={"type": click.IntRange(1), "metavar": "N"})
def show(call: Call, schedule: Path, plot: Path | None, top: int | None, as_json: bool) -> None:
    """Listed are the steps that are distributed or whose largest tensor reaches the schedule's threshold,
    each with its sizes, state, distributed modes (marked by a star) and predicted time.
    """
    from tnplan.reporting.tables import console

    chain = call(schedule, top=top, plot=plot)
    if as_json:
        say(json.dumps(chain.document))
        return
    console().print(chain.view)
    if plot:
        say(f"wrote {plot}")


@command(
    "slurm.slurm",
    per_node={"type": click.IntRange(1)},
    setup={"type": str, "metavar": "COMMANDS"},
    result={"type": str, "metavar": "FILE", "default": "result.npy"},
)
def slurm(call: Call, schedule: Path, output: Path | None, **options: Any) -> None:
    """It asks for the nodes and devices that the schedule was planned for, and continues a job that was
    stopped. The script goes to --output, or is printed.
    """
    script = call(schedule, output=output, **options)
    say(str(script) if output is None else f"wrote {output}: submit it with 'sbatch {output}'")


@command(
    "execute.execute",
    tensors="An .npz with t0, t1, ... Default: the file that the schedule names.",
    slices={"type": str, "metavar": "FIRST:STOP"},
)
def execute(call: Call, schedule: Path, as_json: bool, **options: Any) -> None:
    """mpirun -n P tnplan execute SCHEDULE takes any multiple P of the schedule's group. Without mpirun the
    ranks are threads of this process. The result goes to --output, with a .json of what was measured beside
    what was predicted; finished slices are kept in OUTPUT.ckpt until the result is written.
    """
    with warnings.catch_warnings(), ProgressLines() as progress:
        warnings.simplefilter("ignore", RuntimeWarning)
        outcome = call(schedule, progress=progress, **options)
    report, output = outcome.report, options["output"]
    if report["not_finite"]:
        say_once(f"warning: the result holds {report['not_finite']} values that are NaN or infinite")
    if output is not None and outcome.array is None:
        output = output.with_suffix(".shards.json")
    say_result(report, as_json, [outcome], [output])


@command(
    "simulate.simulate",
    observable={"type": str, "metavar": "SUM", "help": "Such as 'Z62' or '0.5*X0 X1 - Z3'."},
    amplitudes={"type": BITS},
    marginal={"type": QUBITS, "help": "Probabilities of the values of these qubits."},
    start={"type": FILE, "help": "Begin with this saved state."},
)
def statevector(call: Call, circuit: Path, as_json: bool, **options: Any) -> None:
    """CIRCUIT is a qsim or OpenQASM file, which may measure, reset and branch anywhere. If it does so
    before its end, or is noisy, it runs once per shot. What does not fit into memory is refused before it
    starts. Under mpirun, a power of two of ranks share the state. docs/explanation/statevector.md explains
    the rest.
    """
    with ProgressLines() as progress:
        result = call(circuit, progress=progress, **options)
    output, save = options["output"], options["save"]
    written = [] if output is None else [f"{output} (result)"]
    if save is not None:
        written.append(f"{save} (state), {_state_files(save, result.report['ranks'])} (its amplitudes)")
    say_result(result.report, as_json, [result], written)


def _state_files(save: Path, ranks: int) -> str:
    """The names of the amplitudes' files, or the first and the last."""
    from tnplan.executor.statevector.state_file import state_file

    first, last = state_file(save, 0), state_file(save, ranks - 1)
    return str(first) if ranks == 1 else f"{first} to {last.name}"


@command(
    "compress_file.compress_file",
    source=click.argument("source", type=FILE, metavar="FILE.npy"),
    nonfinite={
        "flags": ["--refuse-nonfinite"], "flag_value": "refuse", "show_default": False,
        "help": "Refuse NaN and infinities instead of keeping them.",
    },
)  # fmt: skip
def compress(call: Call, as_json: bool, **options: Any) -> None:
    """The error of each real or imaginary part is at most the bound. FILE.npy holds float32, float64,
    complex64 or complex128 numbers. docs/explanation/compression.md explains bounds and settings.
    """
    _say_codec(call(**options), as_json)


@command("compress_file.decompress_file", source=click.argument("source", type=FILE, metavar="FILE.npy.tnz"))
def decompress(call: Call, as_json: bool, **options: Any) -> None:
    """FILE.npy.tnz is what 'tnplan compress' wrote."""
    _say_codec(call(**options), as_json)


def _say_codec(report: dict[str, Any], as_json: bool) -> None:
    kind = report["coder"] + ("" if report["mirror"] == "none" else ", mirror image left out")
    limit = "lossless" if report["mode"] == "lossless" else f"{report['mode']} bound {report['bound']:g}"
    line = (
        f"{report['array_bytes']} bytes of {report['dtype']}, {report['stream_bytes']} compressed: "
        f"ratio {report['ratio']:.2f} ({'; '.join(dict.fromkeys((kind, limit)))}) in {report['time_s']:.3g} s"
    )
    say_result(report, as_json, [line], [report["output"]])


@command(
    "calibrate.calibrate",
    base={"type": PROFILE, "metavar": "PROFILE"},
    dtypes={
        "flags": ["--dtype"], "type": str, "multiple": True, "default": None,
        "help": "Only this dtype. Default: all.",
    },
)  # fmt: skip
def calibrate(call: Call, base: str, dtypes: tuple[str, ...], output: Path | None, **options: Any) -> None:
    """Copies, permutations, matrix products by size and precision, fused chains and launches are measured on
    one device; under mpirun, changes of layout between all ranks too. One profile serves all machines of a
    kind: plan and report take it with --hardware FILE.
    """
    from tnplan.planner.hardware.profile import profile_text

    if dtypes:
        options["dtypes"] = dtypes
    profile = call(base, output=output, progress=say_progress, **options)
    say(profile_text(profile) if output is None else f"written: {output}")


@command("warmup.warmup")
def warmup(call: Call, device: str) -> None:
    """For containers and job scripts: afterwards no first call waits for them. What is in the caches already
    is not compiled again. TNPLAN_CACHE_DIR names the folder of the caches.
    """
    done = call(device=device, progress=say_progress)
    say(f"{done.compiled} files compiled in {done.time_s:.1f} s, in {done.folder}")
