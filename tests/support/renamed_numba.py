"""Numba with another name in the place of one of its own, everywhere in its sources.

As a script: `python -m tests.support.renamed_numba NAME,...` calls a function of numba's own, a kernel of
tnplan, and a function whose code is kept; it prints what came.
"""

from __future__ import annotations

import ast
import re
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import CodeType
from typing import Any

from tests.support.root import ROOT
from tnplan.common.kernels.kernel import kernel

INNER = tuple(f"tnplan/common/kernels/{name}.py" for name in ("object_code_kernel", "numba_cache"))
"""The modules that may use numba's inner names."""
DEFINED = re.compile(r"^ *(?:class|def) (\w+)|^ *self\.(\w+) =|^(?:    )?(\w+) =", re.MULTILINE)
"""The names of classes and functions, and of fields of objects, classes and modules."""


def inner_names() -> list[str]:
    """The names in these modules that numba defines itself, in `numba.core`."""
    used: set[str] = set()
    for name in INNER:
        for node in ast.walk(ast.parse((ROOT / name).read_text())):
            if isinstance(node, ast.Attribute):
                used.add(node.attr)
            elif isinstance(node, ast.alias):
                used.add(node.name)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                used.add(node.value)
    spec = find_spec("numba")
    assert spec is not None
    assert spec.origin is not None
    sources = "\n".join(path.read_text() for path in (Path(spec.origin).parent / "core").glob("*.py"))
    return sorted(used & {name for found in DEFINED.findall(sources) for name in found})


class Renaming(MetaPathFinder):
    """Finds the modules of numba, with other names in them."""

    def __init__(self, names: list[str]) -> None:
        self._pattern = re.compile(rf"\b({'|'.join(names)})\b")

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """The module, compiled anew where one of the names stands in it."""
        if not fullname.startswith("numba."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or not isinstance(spec.loader, SourceFileLoader) or spec.origin is None:
            return spec
        text = Path(spec.origin).read_text()
        if self._pattern.search(text):
            code = compile(self._pattern.sub(r"\1_renamed", text), spec.origin, "exec")
            spec.loader = _Compiled(fullname, spec.origin, code)
        return spec


class _Compiled(SourceFileLoader):
    """A module whose code is given."""

    def __init__(self, fullname: str, path: str, code: CodeType) -> None:
        super().__init__(fullname, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        """The code."""
        return self._code


@kernel(error_model="numpy")
def added_up(numbers: Any, first: int) -> int:
    """The sum of numbers, by a kernel of tnplan."""
    found = first
    for number in numbers:
        found += number
    return found


if __name__ == "__main__":
    sys.meta_path.insert(0, Renaming(sys.argv[1].split(",")))
    import numba
    import numpy as np

    @numba.njit(error_model="numpy")
    def plain(numbers: Any) -> int:
        found = 0
        for number in numbers:
            found += number
        return found

    print("numba:", plain(np.arange(5)))
    from tnplan.common.kernels.compile_kernel import cached_njit

    print("kernel:", added_up(np.arange(5), 9))
    print("kept:", *(cached_njit()(plain.py_func)(np.arange(5)) for _ in range(2)))
