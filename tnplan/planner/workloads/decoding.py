"""Exact maximum-likelihood decoding: the network of how likely each logical class is, given a syndrome.

With independent errors e of probability p_e that flip the detectors D_e and the observables L_e, the
probability of syndrome s together with the logical flips l is a Walsh-Hadamard transform,

    P(s, l) = 2^-(n_D + n_L) sum_{x, y} (-1)^(x.s + y.l) prod_e f_e,   f_e = 1 - 2 p_e [x.D_e + y.L_e is odd],

for the expected value of (-1)^(x.D + y.L) over the flips D, L of random errors factorises. The most likely
class is the l of the largest P. Every detector is one hyper-index x, every observable one y; an error has a
tensor over what it flips and no index of its own. Knows no code, no path and no device.
"""

from __future__ import annotations

import numpy as np

from tnplan.common.errors import InputError
from tnplan.planner.networks.network import Network
from tnplan.planner.workloads.error_model import ErrorModel, check_syndrome

Factors = dict[tuple[str, ...], np.ndarray]
"""Tensors by their indices; none has an index twice, and all have theirs in the same order."""

LARGEST_ERROR = 16
"""An error that flips n detectors and observables has a tensor of 2^n elements."""
MOST_OBSERVABLES = 20
"""The result has 2^n elements for n observables."""


def decoding_network(model: ErrorModel, syndrome: str) -> tuple[Network, list[np.ndarray]]:
    """The network of P(syndrome, l), one open index of extent 2 for each observable, in float64.

    `syndrome` is 0 or 1 for each detector. The sum of the result is the probability of the syndrome. No value
    on the way is above 1. Where a detector fires, its sum is a difference of nearly equal values and loses
    digits; sums that are formed last, as those of sliced detectors are, lose most.
    """
    check_syndrome(model, syndrome)
    if model.n_observables > MOST_OBSERVABLES:
        raise InputError(
            "error model", f"has {model.n_observables} observables", f"give at most {MOST_OBSERVABLES}"
        )
    factors = _factors(model)
    present = {index for term in factors for index in term}
    for detector, bit in enumerate(syndrome):
        if f"d{detector}" in present:
            _multiply(factors, (f"d{detector}",), np.array([0.5, -0.5 if bit == "1" else 0.5]))
    factors = _absorb(factors)
    inputs, arrays = list(factors), list(factors.values())
    output = tuple(f"l{observable}" for observable in range(model.n_observables))
    for observable, index in enumerate(output):
        inputs.append((f"y{observable}", index))
        arrays.append(np.array([[0.5, 0.5], [0.5, -0.5]]))
    return Network(tuple(inputs), output, {index: 2 for term in inputs for index in term}), arrays


def _factors(model: ErrorModel) -> Factors:
    """The tensors f_e; errors that flip the same are one tensor, the product of theirs."""
    factors: Factors = {}
    for number, error in enumerate(model.errors):
        term = (*(f"d{i}" for i in error.detectors), *(f"y{i}" for i in error.observables))
        if not term:
            continue
        if len(term) > LARGEST_ERROR:
            problem = f"flips {len(term)} detectors and observables"
            raise InputError(f"error {number}", problem, f"give errors that flip at most {LARGEST_ERROR}")
        odd = np.indices((2,) * len(term)).sum(axis=0) % 2
        _multiply(factors, term, 1 - 2 * error.probability * odd)
    return factors


def _multiply(factors: Factors, term: tuple[str, ...], tensor: np.ndarray) -> None:
    factors[term] = factors[term] * tensor if term in factors else tensor


def _absorb(factors: Factors) -> Factors:
    """The same product of fewer tensors: one whose indices another has too is multiplied into that."""
    kept: Factors = {}
    holders: dict[str, dict[tuple[str, ...], None]] = {}
    for term in sorted(factors, key=len, reverse=True):
        rarest = min((holders.get(index, {}) for index in term), key=len)
        host = next((other for other in rarest if set(term) <= set(other)), None)
        if host is not None:
            shape = tuple(2 if index in term else 1 for index in host)
            kept[host] = kept[host] * factors[term].reshape(shape)
            continue
        kept[term] = factors[term]
        for index in term:
            holders.setdefault(index, {})[term] = None
    return kept
