"""Hosts made of namespaces of this machine: each with its own name, network, IPC and /dev/shm.

A switch (a bridge in a network of its own) joins them; nothing of the machine's own network is touched.
MPICH's hydra or Open MPI starts ranks across them by a program that enters a host's namespaces, as ssh would
reach it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from tests.support.heeded_signals import heeded
from tests.support.mpirun import MPIRUN, open_mpi
from tests.support.root import ROOT

KINDS = ("-m", "-u", "-i", "-n")
SUBNET = "10.77.0."


@dataclass
class Host:
    """One host: its name, its address, and the process that holds its namespaces."""

    name: str
    address: str
    pid: int

    def enter(self, *command: str) -> list[str]:
        """The command, run on this host."""
        return ["nsenter", "-t", str(self.pid), *KINDS, f"--wd={os.getcwd()}", "--", *command]

    def run(self, *command: str) -> str:
        """Run a command on this host; what it prints."""
        return subprocess.run(self.enter(*command), check=True, capture_output=True, text=True).stdout

    def processes(self, word: str) -> list[int]:
        """The processes here whose command has a word."""
        space = os.readlink(f"/proc/{self.pid}/ns/net")
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.readlink(entry / "ns" / "net") == space:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    if any(word.encode() in part for part in words):
                        found.append(int(entry.name))
            except OSError:
                continue
        return sorted(found)

    def lose(self) -> None:
        """All that runs here is gone; with its cable cut before, without a word to the others."""
        for process in self.processes(""):
            if process != self.pid:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)


@dataclass
class Cluster:
    """Hosts on one switch."""

    folder: Path
    switch: int
    hosts: list[Host] = field(default_factory=list)
    jobs: list[subprocess.Popen[str]] = field(default_factory=list)

    def link(self, number: int, up: bool) -> None:
        """The cable between a host and the switch."""
        state = "up" if up else "down"
        subprocess.run(
            ["nsenter", "-t", str(self.switch), "-n", "ip", "link", "set", f"p{number}", state], check=True
        )

    def mpirun(
        self, ranks: int | Sequence[int], arguments: Sequence[object], launcher: str = "hydra",
        cwd: Path | None = None, **variables: str,
    ) -> subprocess.Popen[str]:  # fmt: skip
        """Start `python ARGUMENTS` on so many ranks of every host, or of each; mpirun itself is on the first.

        `launcher` is "hydra" or "openmpi".
        """
        counts = [ranks] * len(self.hosts) if isinstance(ranks, int) else ranks
        names = ",".join(f"{host.name}:{count}" for host, count in zip(self.hosts, counts, strict=True))
        start, settings = LAUNCHERS[launcher](str(self.folder / "reach"), names)
        folder = [] if cwd is None else ["-wdir", str(cwd)]
        command = [*start, *folder, "-n", str(sum(counts)), sys.executable, *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **settings, **variables}
        with heeded(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            job = subprocess.Popen(
                self.hosts[0].enter(*command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env=environment, start_new_session=True,
            )  # fmt: skip
        self.jobs.append(job)
        return job


def _hydra(reach: str, names: str) -> tuple[list[str], dict[str, str]]:
    """MPICH's mpirun for hosts that the program `reach` reaches, and its environment."""
    command = [str(MPIRUN), "-launcher", "ssh", "-launcher-exec", reach, "-hosts", names, "-iface", "eth0"]
    return command, {"FI_PROVIDER": "tcp", "UCX_TLS": "tcp,self,sm", "UCX_NET_DEVICES": "eth0"}


def _open_mpi(reach: str, names: str) -> tuple[list[str], dict[str, str]]:
    """The same for Open MPI from version 5 on; mpi4py takes its library in place of its own."""
    prefix = open_mpi()
    assert prefix is not None
    command = [
        str(prefix / "bin" / "mpirun"), "--prtemca", "plm_ssh_agent", reach, "--prtemca", "prte_if_include",
        "eth0", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self,sm", "--mca", "btl_tcp_if_include", "eth0",
        "--host", names, "--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none",
    ]  # fmt: skip
    root = ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT")
    return command, {
        "PATH": f"{prefix / 'bin'}:{os.environ['PATH']}", "MPI4PY_MPIABI": "openmpi",
        "MPI4PY_LIBMPI": str(prefix / "lib" / "libmpi.so"),
        **{f"{name}{more}": "1" for name in root for more in ("", "_CONFIRM")},
    }  # fmt: skip


LAUNCHERS = {"hydra": _hydra, "openmpi": _open_mpi}


def _hold(*more: str, script: str) -> subprocess.Popen[str]:
    made = subprocess.Popen(
        ["unshare", "-n", *more, "bash", "-c", f"{script} && echo ready && exec sleep infinity"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert made.stdout is not None
    if made.stdout.readline() != "ready\n":
        made.kill()
        raise RuntimeError(made.communicate()[1])
    return made


@contextmanager
def cluster(n_hosts: int, folder: Path, own_folders: bool = False) -> Iterator[Cluster]:
    """So many hosts; with `own_folders` each has its own `folder`/disk."""
    holders: list[subprocess.Popen[str]] = []
    names = folder / "names"
    names.write_text("127.0.0.1 localhost\n" + "".join(f"{SUBNET}{i + 1} h{i}\n" for i in range(n_hosts)))
    (folder / "disk").mkdir(exist_ok=True)
    made = None
    try:
        holders.append(_hold("-m", script="ip link add br0 type bridge && ip link set br0 up"))
        made = Cluster(folder, holders[0].pid)
        for number in range(n_hosts):
            script = f"hostname h{number} && mount -t tmpfs shm /dev/shm && mount --bind {names} /etc/hosts"
            if own_folders:
                script += f" && mount -t tmpfs -o size=4m disk {folder / 'disk'}"
            holders.append(_hold("-m", "-u", "-i", script=script))
            host = Host(f"h{number}", f"{SUBNET}{number + 1}", holders[-1].pid)
            made.hosts.append(host)
            subprocess.run(
                ["nsenter", "-t", str(made.switch), "-n", "bash", "-c",
                 f"ip link add p{number} type veth peer name eth0 netns {host.pid} && "
                 f"ip link set p{number} master br0 up"], check=True,
            )  # fmt: skip
            host.run(
                "bash",
                "-c",
                f"ip link set lo up && ip addr add {host.address}/24 dev eth0 && ip link set eth0 up",
            )
        pids = " ".join(f"{host.name}) pid={host.pid};;" for host in made.hosts)
        reach = folder / "reach"
        reach.write_text(
            f'#!/bin/bash\n[ "$1" = -x ] && shift\ncase "$1" in {pids} *) exit 255;; esac\nshift\n'
            f'exec nsenter -t "$pid" {" ".join(KINDS)} --wd="$PWD" -- bash -c "$*"\n'
        )
        reach.chmod(0o755)
        yield made
    finally:
        for host in made.hosts if made is not None else ():
            host.lose()
        for job in made.jobs if made is not None else ():
            if job.poll() is None:  # a test failed while its job ran
                os.killpg(job.pid, signal.SIGKILL)
            job.communicate()
        for holder in reversed(holders):
            holder.kill()
            holder.communicate()


@cache
def why_no_hosts() -> str:
    """Why no hosts can be made here; empty where they can."""
    for tool in ("unshare", "nsenter", "ip"):
        if shutil.which(tool) is None:
            return f"needs the program {tool}"
    tried = subprocess.run(
        ["unshare", "-n", "-m", "-u", "-i", "bash", "-c",
         "ip link add v0 type veth peer name v1 && ip link add br0 type bridge && hostname x"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if tried.returncode == 0:
        return ""
    return f"needs namespaces of networks and hosts ({tried.stderr.strip()[:80]})"


needs_hosts = pytest.mark.skipif(bool(why_no_hosts()), reason=why_no_hosts() or "hosts can be made")


def ended(process: subprocess.Popen[str], limit_s: float) -> tuple[int | None, str, float]:
    """Status, standard error and seconds until the end; status None where it did not end in time."""
    begin_s = time.monotonic()
    try:
        _, err = process.communicate(timeout=limit_s)
        return process.returncode, err, time.monotonic() - begin_s
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        _, err = process.communicate()
        return None, err, time.monotonic() - begin_s
