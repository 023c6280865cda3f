"""The frame of the command line: finds sub-commands by name, and turns errors into one line and a status.

Imports nothing heavy: a sub-command's file is imported when that command runs or is asked for its help.

Exit status: 0 done, 1 a failure while running, 2 the input or the usage is wrong, 130 interrupted, 129 and
143 ended by a signal, at once also while a command computes.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from types import FrameType
from typing import TextIO

import click

from tnplan.cli.terminal import allow_any_encoding, say, say_once
from tnplan.common.errors import InputError, failure_text
from tnplan.common.release import release
from tnplan.executor.device.comm.launcher import (
    interrupt_ends_process,
    interrupt_is_raised,
    launched_rank,
    launched_size,
)
from tnplan.executor.device.protocols import stop_signal
from tnplan.executor.device.protocols.stop_signal import NOTHING_KEPT, STATUS, StoppedRunError

ENDING = tuple(
    signal.Signals[name]
    for name in ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGXCPU")
    if hasattr(signal, name)
)
"""Those that end any process which does not know them: schedulers send several of them."""
SIGNALLED = 128
"""The exit status of a signal is its number and this, as shells say it."""
INTERRUPT_S = 5.0
"""How long Ctrl-C may take: an exception of Python ends what it can."""

_stopping = threading.Lock()


def end_by_signals() -> None:
    """Let the signals end this process, unless its starter has it ignore them.

    On Windows a process gets no signal but Ctrl-C, which Python raises.
    """
    if sys.platform == "win32":
        return
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _passed_on)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    stop_signal.end_command_by(_stop)
    threading.Thread(target=_watch, args=(read_end,), name="signals", daemon=True).start()


def _passed_on(number: int, frame: FrameType | None) -> None:
    """Nothing: the number goes through the pipe to the thread."""


def _watch(read_end: int) -> None:
    while received := os.read(read_end, 1):
        number = received[0]
        handler = signal.getsignal(number)
        if handler is _passed_on:
            _end(SIGNALLED + number)
        elif handler is signal.default_int_handler:
            # Python's own handler raises KeyboardInterrupt when the interpreter is reached; where a
            # kernel does not come back by then, the process ends without it.
            late = threading.Timer(INTERRUPT_S, _interrupt_late, (SIGNALLED + number,))
            late.daemon = True
            late.start()
        # A job that heeds signals ends at its next checkpoint.
        elif number in stop_signal.SIGNALS:
            stop_signal.ask(number)


def _stop(line: str) -> None:
    """End a job that has nothing to keep but what is on the disk."""
    _stopping.acquire()  # the job's own thread may come here too: one speaks, the other waits for the end
    say(f"tnplan: error: {line}", err=True)
    _end(stop_signal.STATUS)


def _interrupt_late(status: int) -> None:
    """End a job that does not come back from a kernel, and say what it leaves."""
    say(f"tnplan: error: interrupted; {stop_signal.kept_text()}", err=True)
    _end(status)


def _end(status: int) -> None:
    files = sys.modules.get("tnplan.common.files")
    unfinished = getattr(files, "unfinished", None)  # where the command has come to it
    if unfinished is not None:
        unfinished.delete()
    os._exit(status)


COMMANDS = {
    "network": "Turn a circuit into a tensor network and its tensors.",
    "workload": "Write a benchmark network.",
    "search": "Find a contraction path under a memory limit.",
    "plan": "Plan a contraction path as a schedule for a group of ranks.",
    "show": "Show the steps of a schedule.",
    "slurm": "Write the job script that carries out a schedule on a cluster.",
    "execute": "Carry out a schedule.",
    "report": "Project time and speedup for each device count.",
    "amplitudes": "Compute amplitudes of bit strings, or of all values of some qubits.",
    "sample": "Draw outcomes of a circuit.",
    "expectation": "Compute expectation values of sums of Pauli words, and their derivatives.",
    "probabilities": "Compute the probabilities of all values of some qubits.",
    "reduced-density-matrix": "Compute the density matrix of some qubits.",
    "overlap": "Compute the overlap of the final states of two circuits.",
    "trace": "Compute a trace of two operators, one of them evolved by a circuit.",
    "count": "Count the configurations of a graph or a formula, exactly.",
    "optimize": "Find the optimum of a graph or a formula, how many attain it, and one of them.",
    "estimate": "Predict memory, time and error of a question for each method.",
    "pauli": "Propagate an observable through a circuit: its expectation value.",
    "sbd": "Diagonalize a Hamiltonian among selected determinants.",
    "sbd-qubits": "Diagonalize a qubit Hamiltonian in a list of bit strings.",
    "sqd": "Find the ground state from samples of a quantum computer.",
    "compress": "Compress an array within an error bound.",
    "decompress": "Restore a compressed array.",
    "statevector": "Simulate a circuit with all its amplitudes.",
    "calibrate": "Measure this machine and write its hardware profile.",
    "warmup": "Compile all kernels for this machine before they are needed.",
}

QUESTIONS = (
    "amplitudes", "sample", "expectation", "probabilities", "reduced-density-matrix", "overlap", "trace",
)  # fmt: skip
ON_RANKS = ("execute", "pauli", "sbd", "sbd-qubits", "sqd", "statevector", *QUESTIONS, "calibrate")
FILES = {
    **dict.fromkeys((*QUESTIONS, "estimate", "count", "optimize"), "questions"),
    **dict.fromkeys(("sbd", "sbd-qubits", "sqd"), "sbd"),
    **{name: name for name in ("pauli", "report", "search", "workload")},
}  # fmt: skip
"""The files of the commands that are not in commands.py."""
LONGEST_LINE = 2000
LOG = logging.getLogger("tnplan")


class LazyGroup(click.Group):
    """A group whose commands are imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order in which they are used."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the file of one command."""
        if cmd_name not in COMMANDS:
            return None
        import_module(f"tnplan.cli.{FILES.get(cmd_name, 'commands')}")
        from tnplan.cli.from_signature import commands

        return commands[cmd_name](COMMANDS[cmd_name])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, importing none of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _set_debug(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        logging.basicConfig(format="%(message)s")
    LOG.setLevel(logging.DEBUG if value else logging.NOTSET)


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    "--debug", is_flag=True, expose_value=False, callback=_set_debug, help="Show the traceback of a failure."
)
@click.version_option(release(), prog_name="tnplan")
@click.pass_context
def cli(context: click.Context) -> None:
    """Plan tensor-network contractions for many devices, and carry them out.

    Every command explains itself: tnplan COMMAND --help.
    """
    n_ranks = launched_size()
    if n_ranks > 1 and context.invoked_subcommand not in ON_RANKS:
        raise InputError(
            "mpirun", f"started {n_ranks} ranks of 'tnplan {context.invoked_subcommand}'",
            f"start it without mpirun: only {', '.join(ON_RANKS)} work on ranks", topic="ranks",
        )  # fmt: skip


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line on `arguments` (default: those of the process); return the exit status."""
    allow_any_encoding()
    try:
        # Under mpirun all ranks parse the same line: one message is enough.
        with _only_first_prints():
            status = cli.main(arguments, prog_name="tnplan", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        if launched_rank() == 0:
            error.show()
        return 2
    except click.ClickException as error:
        context = getattr(error, "ctx", None)  # of a wrong usage
        hint = f"; see '{context.command_path} --help'" if context else ""
        message = re.sub("valid (integer|float) range", r"valid \1", error.format_message().rstrip("."))
        return _refuse(message + hint, 2)
    except (click.Abort, KeyboardInterrupt) as error:
        _end_children()
        return _interrupted(error.__cause__ if isinstance(error, click.Abort) else error)
    # A run that was stopped and has a checkpoint ends with a status of its own: scripts can tell
    # that it may go on.
    except StoppedRunError as error:
        return _refuse(str(error), STATUS)
    # One line for users; --debug shows the traceback.
    except Exception as error:
        is_debugged = LOG.isEnabledFor(logging.DEBUG)
        if is_debugged:
            traceback.print_exception(error)
        if isinstance(error, InputError):
            return _refuse(error.line, 2)
        more = "" if is_debugged else " (tnplan --debug COMMAND ... shows where)"
        rank = f"rank {launched_rank()}: " if launched_size() > 1 else ""
        _print_error(f"{rank}{failure_text(error)}{more}")
        return 1


def _interrupted(error: BaseException | None) -> int:
    """Say what is there after an interrupt, which names its signal where that is not Ctrl-C; the status."""
    name = next((text for text in getattr(error, "args", ()) if text in signal.Signals.__members__), "SIGINT")
    line = "interrupted" if name == "SIGINT" else f"interrupted by {name}"
    what_is_kept = getattr(error, "__notes__", [NOTHING_KEPT])[0]
    if hasattr(error, "path"):
        what_is_kept = "the best path so far is written, continue with --resume"
    _print_error(f"{line}; {what_is_kept}")
    return SIGNALLED + signal.SIGINT if name == "SIGINT" else STATUS


@contextmanager
def _only_first_prints() -> Iterator[None]:
    """Standard output, also of --help and --version, is that of the first rank."""
    if launched_rank() == 0:
        yield
        return
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        yield


def _end_children() -> None:
    """End the processes that compile kernels, where the command has come to that."""
    ahead = sys.modules.get("tnplan.common.kernels.ahead")
    end = getattr(ahead, "end_children", None)  # its import may be what was interrupted
    if end is not None:
        end()


def main() -> None:
    """The entry point of `tnplan`."""
    warnings.showwarning = _show_warning
    if launched_size() == 1:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # as `tnplan.__main__` has it
            interrupt_is_raised()
        end_by_signals()
        sys.exit(run())
    # Before any import: an interrupt there would show a traceback.
    interrupt_ends_process()
    from tnplan.executor.device.comm import heartbeat

    # The watch of the first job goes on to the end of the process, so that a rank which fails after
    # its job ends the others too.
    heartbeat.begin_command()
    status = run()
    heartbeat.end_of_command()
    sys.exit(status)


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int,
    file: TextIO | None = None, line: str | None = None,
) -> None:  # fmt: skip
    """Print a warning as one line, without the place in the code; all ranks of a job say the same."""
    say_once(f"tnplan: warning: {' '.join(str(message).split())}")


def _refuse(message: str, status: int) -> int:
    """Print what is wrong with the input. All ranks of a job refuse alike; the first one prints it."""
    if launched_rank() == 0:
        _print_error(message)
    return status


def _print_error(message: str) -> None:
    """Print one line in one write, which ranks that share standard error do not mix."""
    text = " ".join(message.split())
    if len(text) > LONGEST_LINE:
        text = f"{text[: LONGEST_LINE // 2]} ... {text[-LONGEST_LINE // 2 :]}"
    say(f"tnplan: error: {text}", err=True)
