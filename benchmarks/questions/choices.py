"""Is the method that `auto` takes the best one, what does the choice cost, and do predicted ranges hold?

    python benchmarks/questions/choices.py --seeds 1000 1200 --limit 20 --output choices.jsonl
    python benchmarks/questions/choices.py --read choices.jsonl
    python benchmarks/questions/choices.py --gpu --seeds 1000 1050 --workers 1 --output devices.jsonl

A line a case: the processor seconds of the choice, and of every method that can answer, first and again, on
one core, beside what is predicted. A method that is not done within the limit is stopped. Goals: the choice
within 1.2 of the best method in 95 % and within 3 in all; the choice itself at most a tenth of the method and
10 ms; ranges hold in 90 %. With `--gpu`: seconds of `auto` on a GPU beside those on its host's CPU.
"""

from __future__ import annotations

import argparse
import json
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

JOB: dict[str, Any] = {"threads": 1, "device": "cpu"}
TURNS, QUICK_S = 3, 4.0
"""Turns of CPU and GPU of a question whose second calls take together at most so many seconds."""
SMALL_LIMITS = {"most_qubits": 200, "most_depth": 40}


def child() -> None:
    """Answer requests, a JSON line each: what is chosen for a seed, or the time of a method."""
    import quimb.tensor  # noqa: F401  (its import is no part of any time here)

    import tnplan
    from tests.support.circuit_families import random_case
    from tnplan.questions import chooser
    from tnplan.questions import circuit as circuit_file

    def asked_of(circuit: Any, case: Any, **options: Any) -> Any:
        """The question as the chooser gets it."""
        found: list[Any] = []

        def grab(read: Any, options: Any, *_: Any) -> None:
            found.append((read(), options))

        original, circuit_file.ask = circuit_file.ask, grab  # type: ignore[assignment]
        try:
            getattr(circuit, case.question)(case.argument, **JOB, **options)
        finally:
            circuit_file.ask = original
        return found[0]

    for line in sys.stdin:
        request = json.loads(line)
        case = random_case(request["seed"], **SMALL_LIMITS)
        circuit, method = tnplan.Circuit(case.circuit), request.get("method")
        asked, options = asked_of(circuit, case)
        answer: dict[str, Any] = {"name": case.name, "question": case.question}
        if method is None:
            choices_s = []
            for _ in range(3):
                chooser.choices.clear()
                asked, options = asked_of(circuit, case)
                begin = process_time()
                answer["chosen"] = chooser.chosen_method(asked, options)
                choices_s.append(process_time() - begin)
            answer["choice_s"] = min(choices_s)
            asked, options = asked_of(circuit, case)
            begin = process_time()
            chooser.chosen_method(asked, options)
            answer["again_s"] = process_time() - begin
            answer["possible"] = chooser.possible_methods(asked, options)
            estimate = circuit.estimate(**{case.question: case.argument}, **JOB, search_time=1.0)
            answer["predicted"] = {
                row.method: [row.cost.shortest_s, row.cost.time_s, row.cost.longest_s]
                for row in estimate.rows if row.cost is not None
            }  # fmt: skip
        else:
            times, job = [], JOB if request.get("device") is None else {"device": request["device"]}
            clock = process_time if job is JOB else perf_counter
            try:
                for _ in range(2):
                    begin = clock()
                    given = getattr(circuit, case.question)(case.argument, method=method, **job)
                    times.append(clock() - begin)
                answer["method"] = given.method
            except Exception as error:
                times, answer["refused"] = [], str(error)
            answer["times_s"] = times
        print(json.dumps(answer), flush=True)


class Child:
    """A process that answers requests, started anew after one that took too long."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any] | None:
        """The answer; None where it does not come in time or the request fails."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--child"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], limit_s)[0]:
            self.process.kill()
            self.process.wait()
            return None
        line = self.process.stdout.readline()
        if not line:  # it failed, and may take a while to end
            self.process.wait()
        return json.loads(line) if line else None


def of_seed(seed: int, worker: Child, limit_s: float) -> dict[str, Any]:
    """The choice, and the time of every method."""
    row = worker.ask({"seed": seed}, 10 * limit_s)
    if row is None:
        return {"seed": seed, "failed": True}
    row["seed"], row["took"] = seed, {}
    for method in row["possible"]:
        row["took"][method] = None
        if row["predicted"].get(method, [0, 0, 0])[0] <= 20 * limit_s:
            answer = worker.ask({"seed": seed, "method": method}, limit_s)
            row["took"][method] = answer and answer["times_s"]
    return row


def on_devices(seed: int, worker: Child, limit_s: float) -> dict[str, Any]:
    """The times of `auto` on the CPU and on the GPU, by turns where it is quick."""
    row: dict[str, Any] = {"seed": seed, "cpu": None, "gpu": None}
    times: dict[str, list[float]] = {"cpu": [], "gpu": []}
    for _ in range(TURNS):
        for name, device in (("cpu", "cpu"), ("gpu", "auto")):
            answer = worker.ask({"seed": seed, "method": "auto", "device": device}, limit_s)
            if answer is None or not answer["times_s"]:
                return row | {name: None}
            times[name] += answer["times_s"]
            row[name] = answer | {"times_s": times[name]}
        if times["cpu"][1] + times["gpu"][1] > QUICK_S:
            break
    return row


def run(
    seeds: Sequence[int], measure: Callable[..., dict[str, Any]], limit_s: float, output: Path, workers: int
) -> None:
    """Measure the cases of some seeds, a line each."""
    lock, left = threading.Lock(), list(reversed(seeds))

    def work() -> None:
        worker = Child()
        while True:
            with lock:
                if not left:
                    return
                seed = left.pop()
            row = measure(seed, worker, limit_s)
            with lock, output.open("a") as file:
                file.write(json.dumps(row) + "\n")

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def summary_of_devices(path: Path) -> bool:
    """Where a GPU is behind its host's CPU; whether it is anywhere."""
    behind = count = 0
    for row in map(json.loads, path.read_text().splitlines()):
        cpu, gpu = ((row[device] or {}).get("times_s") or None for device in ("cpu", "gpu"))
        if not cpu or not gpu:
            print(f"{row['seed']}: cpu {cpu and cpu[1]}, gpu {gpu and gpu[1]}")
            continue
        count += 1
        cpu_s, gpu_s = min(cpu[1:]), min(gpu[1:])
        if gpu_s > 1.1 * cpu_s + 0.002:
            behind += 1
            names = row["cpu"]["name"], row["cpu"]["question"], row["cpu"]["method"], row["gpu"]["method"]
            print(f"{row['seed']}: {', '.join(names)}: cpu {cpu_s:.3g} s, gpu {gpu_s:.3g} s")
    print(f"{count} cases: the GPU is behind in {behind}")
    return behind > 0


def summary(path: Path) -> bool:
    """What the lines come to; whether a goal is missed."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    ratios, choices_s, inside, ranges = [], [], 0, 0
    for row in rows:
        if row.get("failed"):
            print("failed:", row["seed"])
            continue
        took = {method: times[1] for method, times in row["took"].items() if times}
        if not took:
            continue
        # What has a time here and was not done within the limit counts with the limit of this benchmark.
        chosen_s, best = took.get(row["chosen"], float("inf")), min(took, key=lambda method: took[method])
        ratios.append(chosen_s / took[best])
        choices_s.append(row["choice_s"] / (0.1 * chosen_s + 0.01))
        if ratios[-1] > 1.2:
            print(f"{row['seed']}: {row['name']}, {row['question']}: {row['chosen']} {chosen_s:.3g} s, "
                  f"{best} {took[best]:.3g} s; predicted "
                  + ", ".join(f"{m} {p[1]:.3g}" for m, p in row["predicted"].items()))  # fmt: skip
        if choices_s[-1] > 1:
            print(f"{row['seed']}: {row['name']}: choice {row['choice_s']:.3g} s for {chosen_s:.3g} s")
        for method, times in row["took"].items():
            if times and method in row["predicted"]:
                low, _, high = row["predicted"][method]
                ranges += 1
                inside += low <= times[1] <= high
                if not low <= times[1] <= high:
                    said = f"took {times[1]:.3g} s, predicted {low:.3g} to {high:.3g}"
                    print(f"{row['seed']}: {row['name']}, {row['question']}, {method}: {said}")
    print(
        f"{len(ratios)} cases: within 1.2 of the best {sum(ratio <= 1.2 for ratio in ratios)}, within 3 "
        f"{sum(ratio <= 3 for ratio in ratios)}, largest {max(ratios, default=0):.3g}; choices in time "
        f"{sum(share <= 1 for share in choices_s)}; ranges hold {inside} of {ranges}"
    )
    near = sum(ratio <= 1.2 for ratio in ratios) >= 0.95 * len(ratios) and max(ratios, default=0) <= 3
    return not (near and max(choices_s, default=0) <= 1 and inside >= 0.9 * ranges)


def main() -> int:
    """Measure, or read what was measured; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--seeds", nargs=2, type=int, default=(1000, 1020))
    parser.add_argument("--limit", type=float, default=20.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("choices.jsonl"))
    parser.add_argument("--read", type=Path)
    given = parser.parse_args()
    if given.child:
        child()
        return 0
    if given.read is None:
        measure = on_devices if given.gpu else of_seed
        run(range(*given.seeds), measure, given.limit, given.output, given.workers)
    missed = (summary_of_devices if given.gpu else summary)(given.read or given.output)
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    sys.exit(main())
