"""Terms of OEIS A006506, the number of independent sets of the n x n grid, on a GPU.

    python benchmarks/questions/hard_squares.py --small 16          # terms to 16 beside those of the CPU
    python benchmarks/questions/hard_squares.py --n 36,40 --again   # with a second set of primes

A line a term: its digits, its natural logarithm, the seconds, the milliseconds of a row and those that a
row needs at the bandwidth given, for the tiles that it reads and writes. Of three terms at equal steps the
second difference of the logarithms over twice the square of the step is printed: that of the hard-square
constant, 0.407495101261. Goals: equal numbers, and n = 40 in 30 s.
"""

from __future__ import annotations

import argparse
import math
import sys
from decimal import Decimal, localcontext
from time import perf_counter

from tnplan.questions.combinatorial.counting import count_grid

KNOWN = {
    8: 660647962955, 10: 2030049051145980050, 12: 162481813349792588536582997,
    14: 338752110195939290445247645371206783, 15: 52521741712869136440040654451875316861275,
    20: 958979036662929619406859624886958746851620546557485230898539651354907499,
}  # fmt: skip
"""Published terms."""


def logarithm(number: int) -> float:
    """The natural logarithm of an integer of any size."""
    with localcontext(prec=40):
        return float(Decimal(number).ln())


def term(n: int, begin: int, bandwidth: float) -> int:
    """A term by primes from the `begin`-th on."""
    from tnplan.executor.device.cuda.algebra import grid_rows

    rows = grid_rows.GridRows(n)
    start = perf_counter()
    rows.residue(1, 7)
    ready_s = perf_counter() - start
    del rows
    start = perf_counter()
    value, n_primes = count_grid((n, n), skipped=begin)
    total_s = perf_counter() - start
    blocks, _, size = grid_rows.sizes(n)
    # Bytes that a row reads and writes: those of the tiles that are not left out.
    shares = sum(grid_rows.pass_share(n, row_pass) for row_pass in grid_rows.passes(blocks))
    floor_s = 8.0 * size * shares / bandwidth
    row_s = total_s / n_primes / (-(-(n + 1) // 2))
    digits = len(str(value))
    known = "" if n not in KNOWN else f", published: {'equal' if KNOWN[n] == value else 'DIFFERS'}"
    print(
        f"n = {n}: {digits} digits, ln {logarithm(value):.15g}, {total_s:.2f} s, {n_primes} primes, "
        f"vector {4 * size / 1e9:.3f} GB, row {row_s * 1e3:.2f} ms (floor {floor_s * 1e3:.2f} ms), "
        f"ready in {ready_s:.2f} s{known}",
        flush=True,
    )
    return value


GOAL_N, GOAL_S = 40, 30.0


def main() -> int:
    """Compute and check terms; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--n", default="40", help="terms, apart by commas")
    parser.add_argument("--small", type=int, default=0, help="compare terms up to this with those of the CPU")
    parser.add_argument("--again", action="store_true", help="each once more, by primes that are all others")
    parser.add_argument("--bandwidth", type=float, default=4.2e12, help="bytes a second, for the floor")
    parser.add_argument("--digits", action="store_true", help="print all digits")
    options = parser.parse_args()
    import tnplan
    differs, took_s = False, {}
    for n in range(1, options.small + 1):
        wanted = tnplan.count("independent-sets", f"grid {n}x{n}", device="cpu").value
        number, _ = count_grid((n, n))
        if number != wanted:
            differs = True
            print(f"n = {n}: {number} DIFFERS from {wanted} of the CPU", flush=True)
    if options.small:
        print(f"terms to n = {options.small} compared with the CPU", flush=True)
    terms = {}
    for n in map(int, filter(None, options.n.split(","))):
        start = perf_counter()
        terms[n] = term(n, 0, options.bandwidth)
        took_s[n] = perf_counter() - start
        differs |= KNOWN.get(n, terms[n]) != terms[n]
        if options.digits:
            print(terms[n], flush=True)
        if options.again:
            again = term(n, 100, options.bandwidth)
            differs |= again != terms[n]
            print(f"n = {n}: primes 100 on: {'equal' if again == terms[n] else 'DIFFERS'}", flush=True)
    numbers = sorted(terms)
    for first, second, third in zip(numbers, numbers[1:], numbers[2:], strict=False):
        if second - first == third - second:
            with localcontext(prec=60):
                logs = [Decimal(terms[n]).ln() for n in (first, second, third)]
                constant = float((logs[0] - 2 * logs[1] + logs[2]) / (2 * (second - first) ** 2))
            of = f"n = {first}, {second}, {third}"
            print(f"{of}: ln of the constant {constant:.15f}, it is {math.exp(constant):.15f}")
    missed = differs or took_s.get(GOAL_N, 0.0) > GOAL_S
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
