"""Random einsum calls of every syntax, dtype, layout and library, many of them wrong, against numpy.einsum.

NumPy contracts in long doubles, or integers and fractions as objects of Python, which are exact.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from tnplan.calls.contract import compile as compile_contraction
from tnplan.calls.contract import contract
from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import DTYPES as DTYPES_OF_PATHS

Array = np.ndarray[Any, Any]
DTYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32",
    "float64", "complex64", "complex128",
)  # fmt: skip
RARE_DTYPES = ("object", "longdouble", "clongdouble", "U1", "M8[D]", "m8[s]", "V4")
EPSILONS = {"float16": 1e-3, "float32": 1.2e-7, "complex64": 1.2e-7}
FACTOR = 16
"""Rounding errors of a result, in epsilons of the sum of the magnitudes of its products."""
SMALL = 1e-300
INSTEAD_OF_0 = 37
"""An extent that no axis has."""
MAY_REFUSE = (
    "of dtype object", "cannot be an array of jax", "beyond 64 bits", "have dtype", "memory",
    "more than the limit",
    "to one device", "of one library", "out: is of type ndarray; give an array of cupy",
    "out: is on another device",
    "torch traces", "has 1 GPU for",
)  # fmt: skip
"""What a right call may be refused for: objects beside torch, arrays of JAX as `out`, sums that may overflow,
long doubles, integers on a GPU, arrays of several devices, small limits of memory, `out` and exponents of
what torch differentiates, and more devices than there are GPUs."""
Ways = dict[str, Callable[[random.Random, Any], Any]]
"""How an operand is given."""


@dataclass
class Call:
    """A call: what it is given, and what comes of it."""

    arguments: list[Any]
    """As of `contract`: an equation and operands, or interleaved lists."""
    operands: list[Any]
    equation: str
    """In letters, as NumPy takes it."""
    values: list[Array]
    options: dict[str, Any] = field(default_factory=dict)
    kinds: list[str] = field(default_factory=list)
    """What is special about it."""
    out: str = ""
    """What is given as `out`, by the result: a key of `OUTS` or `WRONG_OUTS`."""
    is_compiled: bool = False
    """Whether it is compiled, and then called twice."""
    is_wrong: bool = False
    """Whether it has to be refused, whatever NumPy says."""


def random_equation(rng: random.Random, sizes: tuple[int, ...]) -> tuple[str, list[list[int]]]:
    """A legal equation of one to five operands, and their shapes."""
    names = sorted(rng.sample("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", rng.randint(1, 6)))
    extents = {name: rng.choice(sizes) for name in names}
    dots = [rng.choice((1, 2)) for _ in range(rng.randint(0, 2))]
    terms, shapes = [], []
    for _ in range(rng.choice((1, 1, 2, 2, 2, 3, 3, 4, 5))):
        term = [rng.choice(names) for _ in range(rng.randint(0, 3))]
        narrow = {name: 1 if rng.random() < 0.1 else extents[name] for name in term}
        shape = [narrow[name] for name in term]
        if rng.random() < 0.25:
            axes, at = dots[len(dots) - rng.randint(0, len(dots)) :], rng.randint(0, len(term))
            term, shape = [*term[:at], "...", *term[at:]], [*shape[:at], *axes, *shape[at:]]
        terms.append("".join(term))
        shapes.append(shape)
    letters = sorted({letter for term in terms for letter in term if letter.isalpha()})
    equation = ",".join(terms)
    if rng.random() < 0.75:
        output = rng.sample(letters, rng.randint(0, len(letters)))
        if "..." in equation:
            output.insert(rng.randint(0, len(output)), "...")
        equation += "->" + "".join(output)
    return equation, shapes


def random_values(rng: random.Random, shape: list[int], name: str) -> Array:
    """Values of a dtype."""
    generator = np.random.default_rng(rng.getrandbits(32))
    if name == "object":
        numbers = generator.integers(-9, 10, shape)
        make: Any = rng.choice((lambda x: Fraction(int(x), 7), lambda x: int(x) * 10**25, int, float))
        values = np.empty(shape, object)
        values[...] = np.vectorize(make, otypes=[object])(numbers) if numbers.size else 0
        return values
    if name[0] in "UMmV":
        return np.zeros(shape, name)
    dtype = np.dtype(name)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        limits, is_large = np.iinfo(dtype), rng.random() < 0.1
        low, high = (limits.min, limits.max) if is_large else (-3 if dtype.kind == "i" else 0, 3)
        return generator.integers(low, high, shape, dtype=dtype, endpoint=True)
    real, imaginary = generator.standard_normal((2, *shape))
    return np.asarray(real + 1j * imaginary if dtype.kind == "c" else real).astype(dtype)


def strided(array: Array, steps: list[int]) -> Array:
    """An array of the same values whose axes have these steps."""
    padded = np.zeros([max(1, extent * abs(step)) for extent, step in zip(array.shape, steps, strict=True)],
                      array.dtype)  # fmt: skip
    view = padded[(..., *(slice(None, None, step) for step in steps))]
    view = view[(..., *(slice(0, extent) for extent in array.shape))]
    view[...] = array
    return view


def reordered(array: Array, order: list[int]) -> Array:
    """An array of the same values whose axes lie in this order in memory."""
    return np.array(array.transpose(order), order="C").transpose([order.index(k) for k in range(array.ndim)])


def read_only(array: Array) -> Array:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


class Subclass(np.ndarray):
    """An array with a name."""


DISGUISES: Ways = {
    "Fortran order": lambda _, array: np.asfortranarray(array),
    "strides": lambda rng, array: strided(array, [rng.choice((-2, -1, 1, 2)) for _ in array.shape]),
    "axes in another order": lambda rng, array: reordered(array, rng.sample(range(array.ndim), array.ndim)),
    "read-only": lambda _, array: read_only(array),
    "byte-swapped": lambda _, array: array.astype(array.dtype.newbyteorder()),
    "list": lambda _, array: array.tolist(),
    "scalar of NumPy": lambda _, array: array[()],
    "subclass": lambda _, array: array.view(Subclass),
    "matrix": lambda _, array: np.matrix(array) if array.ndim == 2 else array,
    "masked array": lambda _, array: np.ma.MaskedArray(array),
    "part of a record": lambda _, array: _field(array),
}
WRONG: Ways = {
    "masked entries": lambda _, array: np.ma.MaskedArray(array, np.ones(array.shape, bool)),
    "None": lambda _, __: None,
    "text": lambda _, __: "ab",
    "dict": lambda _, __: {1: 2},
    "ragged": lambda _, array: [array.tolist(), [array.tolist()], [[1, 2]], 3],
    "objects": lambda _, array: np.full(array.shape, None),
    "generator": lambda _, array: (value for value in array.flat),
    "function": lambda _, __: abs,
}


def _field(array: Array) -> Array:
    record = np.zeros(array.shape, [("before", "i1"), ("values", array.dtype)])
    record["values"] = array
    return record["values"]


def libraries(device: str = "cpu") -> tuple[dict[str, Ways], Ways]:
    """Ways to make arrays of torch and JAX on the host, as far as they are there, or with "gpu" of torch and
    CuPy on one; and arrays of any library that have to be refused."""
    found: dict[str, Ways] = {}
    wrong = dict(WRONG)
    if find_spec("torch"):
        found["torch"], refused = _of_torch()
        wrong |= refused
    if device == "gpu":
        import cupy

        found["cupy"] = {"CuPy": lambda _, array: cupy.asarray(array)}
        for way, make in list(found.get("torch", {}).items()):
            found.setdefault("torch on a GPU", {})[f"{way}, on a GPU"] = lambda rng, array, make=make: make(
                rng, array
            ).cuda()
    elif find_spec("jax"):
        import jax
        from jax.experimental import sparse

        jax.config.update("jax_enable_x64", True)
        found["jax"] = {"jax": lambda _, array: jax.numpy.asarray(array)}
        wrong["sparse of JAX"] = lambda _, array: sparse.BCOO.fromdense(jax.numpy.ones(array.shape))
    if find_spec("scipy"):
        from scipy.sparse import coo_array

        wrong["sparse of SciPy"] = lambda _, array: coo_array(np.ones(array.shape if array.ndim == 2 else 3))
    return found, wrong


def _of_torch() -> tuple[Ways, Ways]:
    import torch

    def make(array: Array) -> Any:
        return torch.from_numpy(np.array(array))

    def negative(array: Array) -> Any:
        return torch._neg_view(make(-array)) if array.dtype.kind in "fc" else make(array)

    good: Ways = {
        "torch": lambda _, array: make(array),
        "torch, transposed": lambda _, array: make(array.T).permute(tuple(range(array.ndim)[::-1])),
        "torch, conjugated": lambda _, array: make(array.conj()).conj(),
        "torch, negative": lambda _, array: negative(array),
        "torch, requires a gradient": lambda _, array: make(array).requires_grad_(array.dtype.kind in "fc"),
    }
    ones: Callable[..., Any] = torch.ones
    wrong: Ways = {
        "meta": lambda _, array: ones(array.shape, device="meta"),
        "sparse of torch": lambda _, array: ones(array.shape).to_sparse(),
        "nested": lambda _, array: torch.nested.nested_tensor([ones(2), ones(3)]),
        "quantized": lambda _, array: torch.quantize_per_tensor(ones(array.shape), 0.1, 0, torch.quint8),
        "half complex": lambda _, array: torch.zeros(array.shape, dtype=torch.complex32),
        "float8": lambda _, array: ones(array.shape).to(torch.float8_e4m3fn),
    }
    return good, wrong


def random_call(
    rng: random.Random, others: dict[str, Ways], wrong: Ways, sizes: tuple[int, ...] = (0, 1, 2, 3, 4)
) -> Call:
    """A call; one in ten has few indices of large extents."""
    if rng.random() < 0.1:
        sizes = (1, 20, 30)
    equation, shapes = random_equation(rng, sizes if rng.random() < 0.3 else tuple(filter(None, sizes)))
    common = rng.choice(DTYPES if rng.random() < 0.9 else RARE_DTYPES)
    values = [
        random_values(rng, shape, common if rng.random() < 0.6 else rng.choice(DTYPES)) for shape in shapes
    ]
    are_no_numbers = any(array.dtype.kind in "UMmV" for array in values)
    call = Call([], list(values), equation, values, is_wrong=are_no_numbers)
    _disguise(rng, call, others, wrong)
    if rng.random() < 0.08:
        _spoil(rng, call)
    call.arguments = _arguments(rng, call)
    _add_options(rng, call)
    return call


def _disguise(rng: random.Random, call: Call, others: dict[str, Ways], wrong: Ways) -> None:
    """Give some operands in another form."""
    library = rng.choice(["numpy", "numpy", *others])
    for number, array in enumerate(call.values):
        if rng.random() < 0.02:
            ways, call.is_wrong = wrong, True
        elif library in others and array.dtype.name in DTYPES and rng.random() < 0.8:
            ways = others[library]
        elif rng.random() < 0.5:
            continue
        else:
            ways = DISGUISES
        way = rng.choice(list(ways))
        call.kinds.append(way)
        call.operands[number] = ways[way](rng, array)
        if ways is DISGUISES:
            call.values[number] = np.asarray(call.operands[number])


def _spoil(rng: random.Random, call: Call) -> None:
    """Make a call that NumPy refuses, most of the time."""
    kind = rng.choice((
        "letter", "operand", "none", "axis", "output", "twice", "character", "extent", "dots", "arrow",
    ))  # fmt: skip
    call.kinds.append(f"spoilt: {kind}")
    left, arrow, right = call.equation.partition("->")
    if kind == "letter":
        left += "q"
    elif kind == "operand":
        call.operands.append(call.operands[0])
        call.values.append(call.values[0])
    elif kind == "none":
        call.operands.pop()
        call.values.pop()
    elif kind in ("axis", "extent"):
        array = call.values[-1][None]
        call.values[-1] = call.operands[-1] = array if kind == "axis" else np.concatenate([array] * 5)
    elif kind == "output":
        arrow, right = "->", right + "Q"
    elif kind == "twice":
        arrow, right = "->", right + left[:1] * 2
    elif kind == "character":
        left = left + rng.choice("-.>,")
    elif kind == "dots":
        left = "..." + left + "..."
    else:
        arrow = rng.choice(("->->", "-", ">", "=>"))
    call.equation = left + arrow + right


def _arguments(rng: random.Random, call: Call) -> list[Any]:
    """The equation, or lists of labels between the operands."""
    equation = call.equation
    kind = rng.choice(("equation",) * 3 + ("spaces", "symbols", "text of NumPy", "lists"))
    letters = sorted({letter for letter in equation if letter.isalpha()})
    is_plain = not any("spoilt" in kind for kind in call.kinds)
    if kind == "lists" and is_plain and call.operands:
        left, arrow, output = equation.partition("->")
        name: Any = rng.choice((ord, str, lambda label: ("index", label), lambda label: 1000 * ord(label)))
        arguments: list[Any] = []
        for operand, term in zip(call.operands, left.split(","), strict=True):
            arguments += [operand, _labels(term, name)]
        call.kinds.append(kind)
        if name is ord and "..." not in equation and rng.random() < 0.3:
            arguments[1::2] = [np.array(term, int) for term in arguments[1::2]]
        return [*arguments, _labels(output, name)] if arrow else arguments
    if kind == "spaces":
        equation = "".join(character + rng.choice(("", " ", "\t", "\n")) for character in equation)
        equation = equation.replace(". ", ".").replace(".\t", ".").replace(".\n", ".")
        equation = equation.replace("- ", "-").replace("-\t", "-").replace("-\n", "-")
    if kind == "symbols" and is_plain:
        first = rng.choice((0xE0, 0x3B1, 0x4E00))
        equation = equation.translate({ord(letter): chr(first + k) for k, letter in enumerate(letters)})
    call.kinds.append(kind)
    return [np.str_(equation) if kind == "text of NumPy" else equation, *call.operands]


def _labels(term: str, name: Callable[[str], Any]) -> list[Any]:
    before, dots, after = term.partition("...")
    return [*map(name, before), *([...] if dots else []), *map(name, after)]


def _add_options(rng: random.Random, call: Call) -> None:
    n = len(call.operands)
    path = [(0, 1)] * (n - 1)
    ways = (True, False, None, "greedy", "optimal", path, np.array(path), ["einsum_path", *path], "auto")
    if rng.random() < 0.3:
        call.options["optimize"] = rng.choice(ways)
        call.kinds.append("optimize")
    if rng.random() < 0.05:
        call.options |= rng.choice((
            {"memory": "1MiB"}, {"memory": 2000}, {"device": "cpu"}, {"threads": 1}, {"devices": 2},
            {"strip_exponent": True},
        ))  # fmt: skip
        call.kinds.append("option")
    chance = rng.random()
    if chance < 0.15:
        call.out = rng.choice((*OUTS, *WRONG_OUTS))
    elif chance < 0.35 and call.kinds[-1:] != ["option"] and "lists" not in call.kinds:
        call.is_compiled = True
    call.kinds += [f"out: {call.out}"] * bool(call.out) + ["compiled"] * call.is_compiled


OUTS: dict[str, Callable[[Array], Any]] = {
    "fits": lambda result: np.full_like(result, 1),
    "Fortran order": lambda result: np.full(result.shape, 1, result.dtype, order="F"),
    "strides": lambda result: strided(np.full_like(result, 1), [-2] * result.ndim),
    "wider": lambda result: np.ones(result.shape, np.complex128 if result.dtype.kind != "O" else object),
    "byte-swapped": lambda result: np.ones(result.shape, result.dtype.newbyteorder()),
}
WRONG_OUTS: dict[str, Callable[[Array], Any]] = {
    "shape": lambda result: np.ones((*result.shape, 2), result.dtype),
    "read-only": lambda result: read_only(np.full_like(result, 1)),
    "narrow": lambda result: np.ones(result.shape, "V1" if result.dtype.kind == "b" else bool),
    "list": lambda result: result.tolist(),
    "scalar": lambda result: result.dtype.type(1),
}


def reference(call: Call) -> tuple[Array, Array] | None:
    """The result in long doubles, or exact, and the sum of the magnitudes; None where NumPy refuses."""
    dtype = np.result_type(*call.values)
    wide = object if dtype.kind in "biuO" else np.clongdouble if dtype.kind == "c" else np.longdouble
    values = [array.astype(wide) for array in call.values]
    # NumPy's loops write beyond a result of long doubles whose arrays have no elements (NumPy 2.4.6): extents
    # of 0 have another one there.
    are_empty = not all(array.size for array in values)
    if are_empty:
        values = [np.ones([extent or INSTEAD_OF_0 for extent in array.shape]) for array in values]
    # Without an ellipsis in the output its axes are summed, as opt_einsum does and NumPy with `optimize`.
    left, arrow, right = call.equation.partition("->")
    sums_dots = bool(arrow) and "..." in left and "..." not in right
    equation = f"{left}->...{right}" if sums_dots else call.equation
    exact, magnitudes = (np.asarray(np.einsum(equation, *each)) for each in (values, map(np.abs, values)))
    if sums_dots:
        axes = tuple(range(exact.ndim - len(right)))
        exact, magnitudes = (np.asarray(each.sum(axis=axes), each.dtype) for each in (exact, magnitudes))
    if are_empty:
        exact = np.zeros([extent % INSTEAD_OF_0 for extent in exact.shape], wide)
        magnitudes = exact
    return exact, magnitudes


def check(call: Call) -> str:
    """Make a call, and compare; the kind of the outcome. Raises AssertionError where it is wrong."""
    try:
        wanted = reference(call)
    except (TypeError, ValueError, ZeroDivisionError):
        wanted = None
    kept = [np.array(each) if type(each) is np.ndarray else None for each in call.operands]
    try:
        found = _result(call, wanted)
    except InputError as error:
        return _check_refusal(call, wanted, str(error))
    if call.is_wrong or call.out in WRONG_OUTS:
        assert not all(array.size for array in call.values), "was to be refused"
        return "refused, as it has to be"
    assert wanted is not None, "NumPy refuses it"
    for operand, copy in zip(call.operands, kept, strict=True):
        assert copy is None or copy.tobytes() == operand.tobytes(), "an operand was changed"
    _compare(call, found, *wanted)
    return "right"


def _result(call: Call, wanted: tuple[Array, Array] | None) -> Any:
    """What a call gives."""
    is_plain = wanted is not None and not call.is_wrong and all(array.size for array in call.values)
    if call.is_compiled and is_plain and np.result_type(*call.values).name in DTYPES_OF_PATHS:
        have_dtypes = all(hasattr(array, "dtype") for array in call.operands)
        shapes = call.operands if have_dtypes else [array.shape for array in call.values]
        dtype = None if have_dtypes else np.result_type(*call.values)
        with compile_contraction(call.arguments[0], *shapes, dtype=dtype, **call.options) as compiled:
            compiled(*call.operands)
            return _written(call, wanted, partial(compiled, *call.operands))
    return _written(call, wanted, partial(contract, *call.arguments, **call.options))


def _written(call: Call, wanted: tuple[Array, Array] | None, contract: Callable[..., Any]) -> Any:
    """What a call gives, or writes."""
    if not call.out or wanted is None or call.is_wrong:
        return contract()
    dtype = np.result_type(*call.values)
    if call.options.get("strip_exponent") and dtype.kind in "iu":
        dtype = np.dtype(float)
    out = (OUTS | WRONG_OUTS)[call.out](np.zeros(wanted[0].shape, dtype))
    if call.out in OUTS and dtype.name in DTYPES and "torch" in _libraries(call):
        import torch

        own = np.dtype(dtype.str)  # that one of C's names of an integer that torch knows
        out = torch.from_numpy(np.array(out, np.complex128 if call.out == "wider" else own))
    found = contract(out=out)
    written = found[0] if call.options.get("strip_exponent") else found
    assert written is out, "not the array given"
    result = np.asarray(out).astype(dtype)
    return (result, found[1]) if call.options.get("strip_exponent") else result


def _libraries(call: Call) -> set[str]:
    """Those of the operands beside NumPy."""
    names = {type(operand).__module__.partition(".")[0] for operand in call.operands}
    return names & {"torch", "jaxlib", "jax", "cupy"}


def _check_refusal(call: Call, wanted: tuple[Array, Array] | None, message: str) -> str:
    if call.is_wrong or wanted is None or call.out in WRONG_OUTS:
        return "refused, as it has to be"
    dtype, exact = np.result_type(*call.values), wanted[0]
    if dtype.kind in "iu" and exact.size:
        limits = np.iinfo(dtype)
        if not limits.min <= exact.min() <= exact.max() <= limits.max:
            return "refused: too large for the integers"
    if call.options.get("strip_exponent") and dtype.kind in "bO":
        return "refused: no exponents of objects"
    assert any(reason in message for reason in MAY_REFUSE), f"was refused: {message}"
    on_gpu = "on a GPU" in message
    assert "have dtype" not in message or on_gpu or dtype.name not in DTYPES, message
    return "refused, as it may be"


def _on_host(found: Any, call: Call) -> Any:
    """A result as an array of NumPy, where it is of the library of the operands."""
    libraries = _libraries(call)
    if not libraries or call.out:
        return found
    assert type(found).__module__.partition(".")[0] in libraries, type(found)
    if "cupy" in libraries:
        return found.get()
    if "torch" in libraries:
        return found.detach().resolve_conj().resolve_neg().cpu().numpy()
    return np.asarray(found)


def _compare(call: Call, found: Any, exact: Array, magnitudes: Array) -> None:
    dtype = np.result_type(*call.values)
    if call.options.get("strip_exponent"):
        dtype = np.dtype(float) if dtype.kind in "iu" else dtype
        found = np.asarray(_on_host(found[0], call) * 10.0 ** found[1], dtype)
    else:
        found = _on_host(found, call)
    assert isinstance(found, np.ndarray), type(found)
    assert (found.dtype, found.shape) == (dtype, exact.shape), (found.dtype, dtype, found.shape, exact.shape)
    if dtype.kind in "biuO":
        wanted = exact > 0 if dtype.kind == "b" else exact
        for value, one, magnitude in zip(found.flat, wanted.flat, magnitudes.flat, strict=True):
            most = 1e-12 * magnitude if isinstance(one, float | complex) else 0
            assert value == one or abs(value - one) <= most, f"{value}, not {one}"
        return
    epsilon = EPSILONS.get(dtype.name, 2.3e-16 + 3e-14 * bool(call.options.get("strip_exponent")))
    error = np.abs(found - exact)
    assert (error <= FACTOR * epsilon * magnitudes + (6e-8 if dtype.name == "float16" else SMALL)).all(), (
        f"differs by {error.max()}"
    )
