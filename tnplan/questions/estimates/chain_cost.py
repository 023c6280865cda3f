"""The cost of matrix product states and operators from bounds of bonds; that of stabilizers."""

from __future__ import annotations

import sys

import numpy as np

from tnplan.planner.hardware.profile import Profile
from tnplan.questions.engines.mps import pilot_s
from tnplan.questions.estimates.cost import EXACT_FACTOR, Cost, room_bytes, slowness
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import (
    Amplitudes,
    CircuitQuery,
    ExpectationValues,
    OpenAmplitudes,
    Overlap,
    Sample,
)

IMPORT_S, START_S = 1.2, 0.005
"""Seconds of the first use of quimb and of a later one, where `slowness` is 1."""
GATE_S, PAIR_S, FAR_S = 5e-5, 6e-4, 1.3e-3
"""Seconds of a gate on one qubit, of one on two neighbours, and of one on others for each bond between them,
beside its operations."""
SVD_FLOP = 800.0
"""Real operations of a gate on two qubits between bonds of D rows, in D^3: its singular value decomposition,
with those that keep the chain canonical."""
SITE_S = 6e-6
"""Seconds to read a site, beside its operations."""
TABLEAU_S, TABLEAU_GATE_S, TABLEAU_WORD_S = 0.002, 2.5e-6, 7e-5
"""Seconds of a tableau of Stim, of each of its gates and of each word, where `slowness` is 1."""
PILOT_TIMES = 1.5
"""What a question takes in all, in the time of its gates."""
LEAST_PILOT_S = 0.05
"""Seconds of a pilot from which on it is made."""
BOUND_FACTOR = 3.0
"""By how much the time may be off: bonds are bounds, and are reached late in a circuit."""


def chain_cost(
    query: CircuitQuery, profile: Profile, options: QuestionOptions, limit_s: float
) -> Cost | None:  # fmt: skip
    """What a question takes by a matrix product state on one device; None where it does not fit.

    Bonds have bounds. Where these are too large or take longer than `limit_s`, all gates are tried for so
    long.
    """
    bounded = _bounded_cost(query, profile, options)
    if limit_s < LEAST_PILOT_S or (bounded is not None and bounded.time_s <= limit_s):
        return bounded
    time_s = pilot_s(query, options, room_bytes(profile), limit_s)
    if time_s is None:
        return bounded
    return Cost(1, room_bytes(profile), PILOT_TIMES * time_s, EXACT_FACTOR)


def _bounded_cost(query: CircuitQuery, profile: Profile, options: QuestionOptions) -> Cost | None:
    """The cost with bonds at their bounds; None where these do not fit."""
    gates, n, slow = query.acting, query.n_qubits, slowness()
    order, log2_bond = query.chain
    position = np.argsort(order).tolist()
    if options.max_bond is not None:
        log2_bond = np.minimum(log2_bond, np.log2(options.max_bond))
    bonds = 2.0 ** np.minimum(log2_bond, 300)
    squares, item = float((bonds**2).sum()), np.dtype(options.dtype).itemsize
    memory = item * (4 * squares + 24 * float(bonds.max(initial=1.0)) ** 2)
    if memory > room_bytes(profile):
        return None
    spans = [
        (min(sites), max(sites))
        for gate in gates.gates if len(sites := [position[qubit] for qubit in gate.qubits]) > 1
    ]  # fmt: skip
    # A bond grows with every gate across it, to its bound with the last one.
    crossings, crossed = np.zeros(n), np.zeros(n)
    for first, last in spans:
        crossings[first:last] += 1
    growth, operations = np.append(log2_bond, 0.0) / np.maximum(crossings, 1), 0.0
    size = np.append(np.minimum(np.arange(1, n), n - np.arange(1, n)), 0)
    for first, last in spans:
        crossed[first:last] += 1
        bits = np.minimum(growth[first:last] * crossed[first:last], size[first:last])
        operations += float((8.0 ** np.minimum(bits, 300)).sum())
    near = sum(last - first == 1 for first, last in spans)
    far = sum(last - first for first, last in spans if last - first > 1)
    rate = profile.rate(options.dtype, options.precision)
    start_s = START_S if "quimb" in sys.modules else IMPORT_S
    seconds = slow * (start_s + GATE_S * (len(gates.gates) - len(spans)) + PAIR_S * near + FAR_S * far)
    least_s = seconds
    seconds += SVD_FLOP * operations / rate
    vectors, blocks = _reads(query)
    all_cubes = float((bonds**3).sum())
    seconds += slow * SITE_S * n * (1 + blocks)
    seconds += 16 * (vectors * squares + 2 * blocks * all_cubes) / rate
    if isinstance(query.question, Overlap):
        seconds *= 2
    return Cost(1, memory, float(seconds), BOUND_FACTOR, least_s / BOUND_FACTOR)


def mpo_cost(query: CircuitQuery, profile: Profile, options: QuestionOptions) -> Cost:
    """What matrix product operators take, with bonds at their bounds: the squares of those of a state.

    Gates outside of the light cones are counted, too.
    """
    order, log2_bond = query.chain
    position = np.argsort(order).tolist()
    bits = np.minimum(2 * log2_bond, 100.0)
    if options.max_bond is not None:
        bits = np.minimum(bits, np.log2(options.max_bond))
    crossed, far = 0.0, 0
    for gate in query.acting.gates:
        sites = [position[qubit] for qubit in gate.qubits]
        crossed += float((8.0 ** bits[min(sites) : max(sites)]).sum())
        far += max(sites) - min(sites)
    bonds = 2.0**bits
    item = np.dtype(options.dtype).itemsize // 2  # real
    memory = item * (8 * float((bonds**2).sum()) + 96 * float(bonds.max(initial=1.0)) ** 2)
    # Real matrices of twice the rows of a state's.
    svd_s = 2 * SVD_FLOP * crossed / profile.rate(options.dtype, options.precision)
    least_s = slowness() * (IMPORT_S + GATE_S * len(query.acting.gates))
    seconds = least_s + len(getattr(query.question, "sums", "b")) * (slowness() * FAR_S * far + svd_s)
    return Cost(1, memory, seconds, BOUND_FACTOR, least_s / BOUND_FACTOR)


def stabilizer_cost(query: CircuitQuery) -> Cost:
    """What Stim takes, on one core: its own work is small beside handing over the gates."""
    n, question = query.n_qubits, query.question
    shots = question.shots if isinstance(question, Sample) else 0
    words = sum(observable.n_terms for observable in getattr(question, "sums", ()))
    start_s = TABLEAU_S + TABLEAU_GATE_S * len(query.program.operations) + TABLEAU_WORD_S * words
    seconds = slowness() * start_s + 2e-9 * shots * n + 1e-10 * n**3
    return Cost(1, float(n * n + n * shots), seconds, BOUND_FACTOR)


def _reads(query: CircuitQuery) -> tuple[int, int]:
    """How often the chain is read with vectors, and with matrices."""
    question = query.question
    if isinstance(question, Sample):
        return question.shots, 0
    if isinstance(question, Amplitudes):
        return len(question.bits), 0
    if isinstance(question, OpenAmplitudes):
        return 2 ** len(question.open_qubits), 0
    if isinstance(question, ExpectationValues):
        return 0, len({word[:2] for observable in question.sums for word in observable.masks()})
    return 0, 2 ** len(getattr(question, "qubits", ()))
