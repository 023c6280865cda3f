"""Arrays of NumPy, CuPy, torch, JAX and others with DLPack: what they are, and results of the same kind.

A library is imported by nobody here: its arrays are there only where it is loaded already.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import DTYPES

HOST = None
"""The device number of arrays in the host's memory."""
DLPACK_CPU, DLPACK_CUDA = 1, 2
"""Kinds of devices in DLPack (its header, DLDeviceType)."""
MOST_AXES = 64
"""Of an array of NumPy."""


@dataclass(frozen=True)
class ArrayKind:
    """The library of some arrays and the memory that they are in.

    - `library`: The top-level module of the arrays' type.
    - `gpu`: The number of the GPU; None for the host's memory.
    """

    library: str
    gpu: int | None


NUMPY_ARRAY = ArrayKind("numpy", HOST)


def library_of(array: Any) -> str:
    """The library of an array; whatever NumPy turns into an array, numbers and lists, is NumPy's."""
    array_type: Any = type(array)
    return _library_of_type(array_type)


@cache
def _library_of_type(array_type: Any) -> str:
    name = array_type.__module__.partition(".")[0]
    if name in ("jaxlib", "jax"):
        return "jax"
    if name == "numpy" or not hasattr(array_type, "__dlpack__"):
        return "numpy"
    # A subclass with an arithmetic of its own, such as that of units, is an array of another library.
    own = ("__array_ufunc__", "__array_function__")
    if issubclass(array_type, np.ndarray) and all(
        getattr(array_type, each) is getattr(np.ndarray, each) for each in own
    ):
        return "numpy"
    return name


def follower_of(arrays: Iterable[Any]) -> str | None:
    """The library that differentiates, maps, traces or compiles what is done with some arrays of its own."""
    if is_compiled():
        return "torch"
    jax = sys.modules.get("jax")
    torch = sys.modules.get("torch")
    if torch is None and jax is None:
        return None
    if jax is not None and any(isinstance(array, jax.core.Tracer) for array in arrays):
        return "jax"
    tensors = [array for array in arrays if torch is not None and isinstance(array, torch.Tensor)]
    if torch is None or not tensors:
        return None
    # Reverse mode shows in `requires_grad`, forward mode in a tangent; vmap and tracers show in
    # modes of torch itself.
    forward = torch.autograd.forward_ad
    has_graph, has_tangents = torch.is_grad_enabled(), forward._current_level >= 0
    is_followed = (
        (has_graph and any(tensor.requires_grad for tensor in tensors))
        or (has_tangents and any(forward.unpack_dual(each).tangent is not None for each in tensors))
        or is_mapped()
        or is_traced()
    )
    return "torch" if is_followed else None


def is_compiled() -> bool:
    """Whether torch.compile or torch.export reads what is done with its arrays."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.compiler.is_compiling())


def is_mapped() -> bool:
    """Whether a transform of torch.func is at work. Its arrays have no values that could be read unseen."""
    active = getattr(sys.modules["torch"]._C, "_are_functorch_transforms_active", None)
    return active is not None and bool(active())


def is_traced() -> bool:
    """Whether torch writes down what is done with its arrays, or they have no values: a result would be a
    constant there."""
    return bool(sys.modules["torch"]._C._len_torch_dispatch_stack())


def torch_addresses(
    arrays: Sequence[Any], shapes: Sequence[tuple[int, ...]], dtype: np.dtype[Any], gpu: int
) -> list[int] | None:
    """The addresses of tensors of torch that have these shapes and this dtype and lie contiguous on this GPU.

    None where one does not, or where torch differentiates, maps or traces what is done with them.
    """
    torch = sys.modules["torch"]
    if len(arrays) != len(shapes) or is_compiled() or is_mapped() or is_traced():
        return None
    if torch.autograd.forward_ad._current_level >= 0:
        return None
    plain, dense, wanted = torch.Tensor, torch.strided, getattr(torch, dtype.name)
    device, has_graph = torch.device("cuda", gpu), torch.is_grad_enabled()
    addresses = []
    for array, shape in zip(arrays, shapes, strict=True):
        # In the order of what is asked fastest; a layout other than strided has no address.
        if (
            type(array) is not plain or array.dtype is not wanted or array.layout is not dense
            or array.is_nested or array.shape != shape or array.device != device
            or not array.is_contiguous() or array.is_conj() or array.is_neg()
            or (has_graph and array.requires_grad)
        ):  # fmt: skip
            return None
        addresses.append(array.data_ptr())
    return addresses


def refuse_followed(arrays: Iterable[tuple[int, Any]], place: str = "array") -> None:
    """Raise InputError where a library follows what is done with one of some arrays, given by number."""
    for number, array in arrays:
        library = follower_of([array])
        if library is not None:
            problem = f"is differentiated, mapped or traced by {library}, which this call does not support"
            remedy = "give its values, or call tnplan.contract or what tnplan.compile returns"
            raise InputError(f"{place} {number}", problem, remedy)


def kind_of(array: Any, place: str) -> ArrayKind:
    """The library and the memory of an array; raises InputError for another memory, or where values are
    missing."""
    library = library_of(array)
    is_torch = library == "torch"
    if is_torch and array.layout is sys.modules["torch"].strided and array.device.type in ("cpu", "cuda"):
        return _torch_kind(array.device)
    _check_values(array, library, place)
    # NumPy's own arrays have `__dlpack_device__` too; the answer is known without a call.
    if library == "numpy" or not hasattr(array, "__dlpack_device__"):
        return NUMPY_ARRAY
    device_type, gpu = (int(entry) for entry in array.__dlpack_device__())
    if device_type not in (DLPACK_CPU, DLPACK_CUDA):
        problem = "is neither on the host nor on a CUDA GPU"
        raise InputError(place, problem, "move the array to one of them", topic="GPUs")
    return ArrayKind(library, gpu if device_type == DLPACK_CUDA else HOST)


def _check_values(array: Any, library: str, place: str) -> None:
    """Raise InputError where not every entry of an array has a value of its own: sparse, masked, or none."""
    if library == "torch" and array.device.type == "meta":
        raise InputError(place, "is a meta tensor of torch, which has no values", "give a tensor with values")
    if library == "torch" and array.layout is not sys.modules["torch"].strided:
        problem = f"is a sparse tensor of torch ({array.layout})"
        raise InputError(place, problem, "make it dense, as array.to_dense() does")
    if "sparse" in type(array).__module__.split("."):
        problem = f"is sparse ({type(array).__module__}.{type(array).__name__})"
        raise InputError(place, problem, "make it dense, as array.todense() does")
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise InputError(place, "has masked entries", "fill them with a value, as array.filled(0) does")


@cache
def _torch_kind(device: Any) -> ArrayKind:
    """That of torch's arrays on a device; DLPack's answer takes ten times as long."""
    return ArrayKind("torch", device.index if device.type == "cuda" else HOST)


def common_kind(arrays: Sequence[Any]) -> ArrayKind:
    """The kind that the result of some arrays has.

    NumPy arrays go with any other library on the host. Raises InputError where arrays are of two other
    libraries, or on two devices.
    """
    common = NUMPY_ARRAY
    if all(type(array) is np.ndarray for array in arrays):
        return common
    if _are_alike(arrays):
        return kind_of(arrays[0], "array 0")
    first = 0
    for number, array in enumerate(arrays):
        kind = kind_of(array, f"array {number}")
        # Beside arrays of another library on the host NumPy's count as that library's; `first`
        # is the array that named it, for the messages.
        if kind is common or number == 0 or kind == common:
            common = kind
        elif kind.gpu != common.gpu:
            problem = f"is on {_memory(kind)}, and array {first} on {_memory(common)}"
            raise InputError(f"array {number}", problem, "move all arrays to one device")
        elif common.library == "numpy":
            common, first = kind, number
        elif kind.library != "numpy":
            problem = f"is of {kind.library}, and array {first} of {common.library}"
            raise InputError(f"array {number}", problem, "give arrays of one library")
    return common


def _are_alike(arrays: Sequence[Any]) -> bool:
    """Whether all arrays are dense ones of torch on one device: asking for the kind of each takes longer."""
    torch, first = sys.modules.get("torch"), arrays[0]
    if torch is None or type(first) is not torch.Tensor:
        return False
    device, tensor, dense = first.device, torch.Tensor, torch.strided
    return all(type(each) is tensor and each.layout is dense and each.device == device for each in arrays)


def _memory(kind: ArrayKind) -> str:
    return "the host" if kind.gpu is None else f"GPU {kind.gpu}"


def host_array(array: Any, place: str) -> NDArray[Any]:
    """The values of an array of any library as a NumPy array, without a copy where that is possible."""
    try:
        if library_of(array) == "torch":
            return _torch_values(array)
        if library_of(array) == "cupy":
            return np.asarray(array.get())
        if library_of(array) in ("numpy", "jax"):
            return np.asarray(array)
        return np.from_dlpack(array)
    except (ValueError, TypeError, RuntimeError, BufferError) as error:
        problem = f"cannot be read as an array ({' '.join(str(error).split())})"
        raise InputError(place, problem, "give real or complex numbers of one shape") from None


def as_array(operand: Any, number: int) -> Any:
    """Numbers and lists of numbers as arrays, as NumPy takes them."""
    place = f"array {number}"
    try:
        return operand if hasattr(operand, "shape") else host_array(operand, place)
    except RuntimeError as error:  # torch's word for a nested tensor
        problem = f"has no shape ({' '.join(str(error).split())})"
        raise InputError(place, problem, "give a dense array") from None


def _torch_values(array: Any) -> NDArray[Any]:
    values = array.detach().resolve_conj().resolve_neg().cpu()
    if str(values.dtype) == "torch.bfloat16":
        values = values.float()
    return np.asarray(values.numpy())


def stated_dtype(array: Any) -> np.dtype[Any]:
    """The dtype of an array in NumPy's words; bfloat16, which NumPy has not, counts as float32."""
    dtype = getattr(array, "dtype", None)
    return np.asarray(array).dtype if dtype is None else numpy_dtype(dtype)


@cache
def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """NumPy's dtype for a dtype of any library."""
    name = dtype.name if isinstance(dtype, np.dtype) else str(dtype).rpartition(".")[2]
    if name == "bfloat16":
        return np.dtype(np.float32)
    try:
        return dtype if isinstance(dtype, np.dtype) else np.dtype(name)
    except TypeError:
        raise _unknown(dtype) from None


@lru_cache
def common_dtype(dtypes: tuple[Any, ...]) -> np.dtype[Any]:
    """The dtype to which NumPy promotes some of any library; objects are numbers of Python."""
    names = [numpy_dtype(dtype) for dtype in dtypes]
    for dtype in names:
        if dtype.kind not in "biufcO":
            raise _unknown(dtype)
    dtype = np.result_type(*names)
    if dtype.kind in "fc":
        computed_dtype(dtype)
    return dtype


def _unknown(dtype: Any) -> InputError:
    return InputError("arrays", f"have dtype {dtype}", f"convert them to one of {', '.join(DTYPES)}")


@cache
def computed_dtype(dtype: np.dtype[Any]) -> str:
    """The dtype in which values of `dtype` are contracted: it holds all of them."""
    name = "float32" if dtype.name == "float16" else dtype.name
    if name not in DTYPES:
        raise _unknown(dtype)
    return name


def as_library(values: NDArray[Any], kind: ArrayKind, like: Any) -> Any:
    """Values on the host as an array of that library; of a device's memory where `like` is one there."""
    if kind.library == "numpy":
        return values
    if values.dtype.kind == "O":
        raise InputError(
            "arrays", f"are of {kind.library} and of dtype object together", "give only NumPy arrays"
        )
    module = sys.modules[kind.library]
    if kind.library == "torch":
        # torch knows C's two names of an integer of 64 bits by one of them alone, that of the text.
        host = module.from_numpy(values.view(np.dtype(values.dtype.str)))
        return host if kind.gpu is None else host.to(f"cuda:{kind.gpu}")
    if kind.library == "jax":
        copied = module.numpy.asarray(values)  # in half the time of device_put
        devices = getattr(like, "devices", copied.devices)()  # an array of NumPy has none
        return copied if copied.devices() == devices else module.device_put(values, devices.copy().pop())
    if kind.library == "cupy":
        with module.cuda.Device(kind.gpu):
            return module.asarray(values)
    if hasattr(module, "from_dlpack") and kind.gpu is None:
        return module.from_dlpack(values)
    raise InputError("arrays", f"are of {kind.library}, which tnplan cannot return", "give NumPy arrays")


def store(result: Any, out: Any) -> Any:
    """`out`, into which a result is written; on ranks without a result None.

    Raises InputError where `out` is no array of that library, shape and memory, or would round the values.
    """
    if isinstance(result, tuple):
        return store(result[0], out), result[1]
    if result is None:
        return None
    library = library_of(result)
    if library not in ("numpy", "torch", "cupy"):
        raise InputError("out", f"cannot be an array of {library}: these cannot change", "leave it out")
    if not isinstance(out, type(result)):
        raise InputError("out", f"is of type {type(out).__name__}", f"give an array of {library}")
    if kind_of(out, "out") != kind_of(result, "result"):
        raise InputError("out", "is on another device than the arrays", "give an array there")
    if tuple(out.shape) != tuple(result.shape):
        problem = f"has shape {tuple(out.shape)}, and the result {tuple(result.shape)}"
        raise InputError("out", problem, "give an array of that shape")
    dtype, own = stated_dtype(result), stated_dtype(out)
    if own.kind not in "biufcO" or not np.can_cast(dtype, own):
        raise InputError(
            "out", f"has dtype {own}, which would round values of {dtype}", "give an array of that dtype"
        )
    follower = follower_of([out, result])
    if follower is not None:
        raise InputError("out", f"is not possible for arrays that {follower} traces", "leave it out")
    try:
        out[...] = result
    except (ValueError, RuntimeError) as error:
        problem = f"cannot be written ({' '.join(str(error).split())})"
        raise InputError("out", problem, "give an array that may be written") from None
    return out


def with_dtype(array: Any, dtype: np.dtype[Any]) -> Any:
    """An array of any library with a dtype, itself where it has it; of complex numbers the real parts where
    the dtype is real."""
    if stated_dtype(array) == dtype:
        return array
    if stated_dtype(array).kind == "c" and dtype.kind != "c":
        return with_dtype(array.real, dtype)
    if library_of(array) == "torch":
        return array.to(getattr(sys.modules["torch"], dtype.name))
    return array.astype(dtype)


def check_axes(output: Sequence[str]) -> None:
    """Raise InputError where a result has more axes than NumPy allows."""
    if len(output) > MOST_AXES:
        problem = f"has {len(output)} axes, and arrays of NumPy have {MOST_AXES} at most"
        raise InputError("result", problem, "keep fewer indices, or join some in the arrays")
