"""The numba kernels of a state that gates of a list act on in turn, and of the sweep back for derivatives.

For states that fit the cache: nothing is scheduled, and one call does all gates. Imported lazily.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.executor.device.cpu.bits_kernel import ONE
from tnplan.executor.statevector.cpu.round_kernel import jit

SHORT = 8
"""Numbers of a run, two an amplitude, that is not worth beginning: its amplitudes are taken one by one."""


@jit
def write_elements(gates: Any, factors: Any, elements: Any) -> None:
    """The elements of gates that parameters change: sums of coefficients times the factors of terms."""
    for varied in range(gates.varied.size):
        first, last = gates.term_ends[varied], gates.term_ends[varied + 1]
        start, end = gates.element_ends[gates.varied[varied]], gates.element_ends[gates.varied[varied] + 1]
        size, base = end - start, gates.coefficient_starts[varied]
        for k in range(size):
            re = im = 0.0
            for term in range(first, last):
                c, f = gates.coefficients[base + (term - first) * size + k], factors[term]
                re += c.real * f.real - c.imag * f.imag
                im += c.real * f.imag + c.imag * f.real
            elements[start + k] = complex(re, im)


@jit
def run_gates(state: Any, gates: Any, elements: Any, scratch: Any) -> None:
    """All gates act on a state."""
    for gate in range(gates.target_masks.size):
        _apply(state, gates, gate, elements, scratch, False)


@jit
def sweep_back(state: Any, lefts: Any, gates: Any, values: Any, scratch: Any, out: Any) -> None:
    """out[row, term] = the derivative of value `row` by the phase of a term.

    `state` is the final state a, lefts[row] is O a for the observable O. Both are changed. `values` are the
    elements of gates and the factors of terms, `scratch` is for a group and for the overlaps of a gate.
    """
    # E = <a|O|a>, and U = sum_t C_t f_t with f_t = exp(i phase_t): dE/dphase_t = 2 Re <left| i f_t C_t |b>, b
    # being the state before the gate, and left the row taken back to behind it.
    (elements, factors), (group, overlaps) = values, scratch
    varied = gates.varied.size - 1
    for gate in range(gates.target_masks.size - 1, -1, -1):
        if varied < 0:
            return
        _apply(state, gates, gate, elements, group, True)
        is_varied = gates.varied[varied] == gate
        for row in range(lefts.shape[0]):
            left = lefts[row]
            if is_varied:
                size = gates.element_ends[gate + 1] - gates.element_ends[gate]
                _overlaps(left, state, gates, gate, overlaps)
                first, base = gates.term_ends[varied], gates.coefficient_starts[varied]
                for term in range(first, gates.term_ends[varied + 1]):
                    re = im = 0.0
                    for k in range(size):
                        c, o = gates.coefficients[base + (term - first) * size + k], overlaps[k]
                        re += c.real * o.real - c.imag * o.imag
                        im += c.real * o.imag + c.imag * o.real
                    f = factors[term]
                    out[row, term] = -2.0 * (f.real * im + f.imag * re)
            _apply(left, gates, gate, elements, group, True)
        if is_varied:
            varied -= 1


@jit
def _apply(state: Any, gates: Any, gate: int, elements: Any, scratch: Any, is_adjoint: bool) -> None:
    """A gate, or its adjoint, acts on a state."""
    first = gates.element_ends[gate]
    targets = gates.target_masks[gate]
    if targets == 0:
        _times_phases(state, gates, gate, elements, first, is_adjoint)
    elif targets & (targets - 1) == 0:
        _turn_pairs(state, gates, gate, elements, first, is_adjoint)
    else:
        _times_matrix(state, gates, gate, elements, scratch, is_adjoint)


@jit
def _selected(gates: Any, gate: int, index: int) -> int:
    """The value of a gate's selectors at an index."""
    first, last = gates.selector_ends[gate], gates.selector_ends[gate + 1]
    value = 0
    for k in range(first, last):
        value = 2 * value + (index >> gates.selectors[k] & 1)
    return value


@jit
def _pair_matrix(elements: Any, base: int, is_adjoint: bool) -> Any:
    a, b, c, d = elements[base], elements[base + 1], elements[base + 2], elements[base + 3]
    return (a.conjugate(), c.conjugate(), b.conjugate(), d.conjugate()) if is_adjoint else (a, b, c, d)


@jit
def _times_phases(state: Any, gates: Any, gate: int, elements: Any, first: int, is_adjoint: bool) -> None:
    run = 2 * gates.runs[gate]
    # Beginning a run takes longer than a few amplitudes.
    if run <= SHORT:
        for i in range(0, state.size, 2):
            phase = elements[first + _selected(gates, gate, i >> 1)]
            c, d = phase.real, -phase.imag if is_adjoint else phase.imag
            x, y = state[i], state[i + 1]
            state[i] = c * x - d * y
            state[i + 1] = c * y + d * x
        return
    for start in range(0, state.size, run):
        phase = elements[first + _selected(gates, gate, start >> 1)]
        c, d = phase.real, -phase.imag if is_adjoint else phase.imag
        if c == 1.0 and d == 0.0:
            continue
        for k in range(np.uint64(run >> 1)):
            near = np.uint64(start) + (k << ONE)
            x, y = state[near], state[near + ONE]
            state[near] = c * x - d * y
            state[near + ONE] = c * y + d * x


@jit
def _turn_pairs(state: Any, gates: Any, gate: int, elements: Any, first: int, is_adjoint: bool) -> None:
    # (x, u) becomes (a x + b u, c x + d u) for the amplitudes at i and i + target, the target being 0 in i.
    # A state is an array of reals, two an amplitude; the mask and the run count these.
    target, run = 2 * gates.target_masks[gate], 2 * gates.runs[gate]
    if run <= SHORT:
        for number in range(0, state.size >> 1, 2):
            # The bits from the target's on move up by one: a zero is put into its place.
            i = number + (number & -target)
            j, base = i + target, first + 4 * _selected(gates, gate, i >> 1)
            a, b, c, d = _pair_matrix(elements, base, is_adjoint)
            x, y, u, v = state[i], state[i + 1], state[j], state[j + 1]
            state[i] = a.real * x - a.imag * y + b.real * u - b.imag * v
            state[i + 1] = a.real * y + a.imag * x + b.real * v + b.imag * u
            state[j] = c.real * x - c.imag * y + d.real * u - d.imag * v
            state[j + 1] = c.real * y + c.imag * x + d.real * v + d.imag * u
        return
    for start in range(0, state.size, run):
        if start & target:
            continue
        base = first + 4 * _selected(gates, gate, start >> 1)
        near, far = state[start : start + run], state[start + target : start + target + run]
        a, b, c, d = _pair_matrix(elements, base, is_adjoint)
        if a == 1.0 and b == 0.0 and c == 0.0 and d == 1.0:  # as where a control is 0
            continue
        a_re, a_im, b_re, b_im = a.real, a.imag, b.real, b.imag
        c_re, c_im, d_re, d_im = c.real, c.imag, d.real, d.imag
        if a_im == 0.0 and b_im == 0.0 and c_im == 0.0 and d_im == 0.0:
            # Real and imaginary parts turn alike, and need half the multiplications.
            for k in range(np.uint64(run)):
                x, y = near[k], far[k]
                near[k] = a_re * x + b_re * y
                far[k] = c_re * x + d_re * y
            continue
        for k in range(np.uint64(run >> 1)):
            i = k << ONE
            x, y, u, v = near[i], near[i + ONE], far[i], far[i + ONE]
            near[i] = a_re * x - a_im * y + b_re * u - b_im * v
            near[i + ONE] = a_re * y + a_im * x + b_re * v + b_im * u
            far[i] = c_re * x - c_im * y + d_re * u - d_im * v
            far[i + ONE] = c_re * y + c_im * x + d_re * v + d_im * u


@jit
def _times_matrix(state: Any, gates: Any, gate: int, elements: Any, scratch: Any, is_adjoint: bool) -> None:
    # psi[i + o_j] becomes the sum over k of U[j, k] psi[i + o_k], or of conj(U[k, j]) psi[i + o_k], for all i
    # whose bits of targets are 0; o_k is the offset of value k of the targets.
    first, targets, shift = gates.element_ends[gate], gates.target_masks[gate], gates.offset_ends[gate]
    side = gates.offset_ends[gate + 1] - shift
    for start in range(state.size >> 1):
        if start & targets:
            continue
        base = first + side * side * _selected(gates, gate, start)
        for k in range(side):
            i = 2 * (start + gates.offsets[shift + k])
            scratch[k] = complex(state[i], state[i + 1])
        for j in range(side):
            re = im = 0.0
            for k in range(side):
                u, x = elements[base + (k * side + j if is_adjoint else j * side + k)], scratch[k]
                p, q = u.real, -u.imag if is_adjoint else u.imag
                re += p * x.real - q * x.imag
                im += p * x.imag + q * x.real
            i = 2 * (start + gates.offsets[shift + j])
            state[i], state[i + 1] = re, im


@jit
def _overlaps(left: Any, state: Any, gates: Any, gate: int, out: Any) -> None:
    """out[s, j, k] = the sum over i of conj(left[i, j]) state[i, k], where the selectors have the value s and
    the targets the values j and k."""
    targets, shift = gates.target_masks[gate], gates.offset_ends[gate]
    side = gates.offset_ends[gate + 1] - shift
    for k in range(gates.element_ends[gate + 1] - gates.element_ends[gate]):
        out[k] = 0.0
    if side == 2:
        _pair_overlaps(left, state, gates, gate, out)
        return
    run = gates.runs[gate] if side == 1 else 1
    for start in range(0, state.size >> 1, run):
        if start & targets:
            continue
        base = side * side * _selected(gates, gate, start)
        for j in range(side):
            for k in range(side):
                re = im = 0.0
                for i in range(start, start + run):
                    a, b = 2 * (i + gates.offsets[shift + j]), 2 * (i + gates.offsets[shift + k])
                    re += left[a] * state[b] + left[a + 1] * state[b + 1]
                    im += left[a] * state[b + 1] - left[a + 1] * state[b]
                out[base + j * side + k] += complex(re, im)


@jit
def _pair_overlaps(left: Any, state: Any, gates: Any, gate: int, out: Any) -> None:
    # `_overlaps` of one target: conj(p + i q) (x + i y) has the parts p x + q y and p y - q x. Four complex
    # sums stay in registers over a run.
    target, run = 2 * gates.target_masks[gate], 2 * gates.runs[gate]
    for start in range(0, state.size, run):
        if start & target:
            continue
        base = 4 * _selected(gates, gate, start >> 1)
        a = b = c = d = e = f = g = h = 0.0
        near, far = np.uint64(start), np.uint64(start + target)
        for n in range(np.uint64(run >> 1)):
            i, j = near + (n << ONE), far + (n << ONE)
            p, q, r, s = left[i], left[i + ONE], left[j], left[j + ONE]
            x, y, u, v = state[i], state[i + ONE], state[j], state[j + ONE]
            a += p * x + q * y
            b += p * y - q * x
            c += p * u + q * v
            d += p * v - q * u
            e += r * x + s * y
            f += r * y - s * x
            g += r * u + s * v
            h += r * v - s * u
        out[base] += complex(a, b)
        out[base + 1] += complex(c, d)
        out[base + 2] += complex(e, f)
        out[base + 3] += complex(g, h)
