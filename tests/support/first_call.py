"""What the first call in a process reads, and which kernels it calls."""

from __future__ import annotations

import json
import subprocess
import sys

FIRST_CALL = """
import json, sys
import numpy as np
import tnplan
folder, entered = tnplan.__path__[0], set()
def note(frame, event, argument):
    name = frame.f_code.co_filename
    if event == "call" and name.startswith(folder):
        entered.add(name)
sys.setprofile(note)
tnplan.contract("ij,jk->ik", np.ones((4, 5)), np.ones((5, 6)))
sys.setprofile(None)
modules = [name for name in sys.modules if name.partition(".")[0] == "tnplan"]
print(json.dumps([len(modules), len(entered)]))
"""


def read_by_a_first_call() -> tuple[int, int]:
    """The numbers of modules of tnplan that are imported, and of its files that are entered."""
    done = subprocess.run([sys.executable, "-c", FIRST_CALL], capture_output=True, text=True, check=True)
    modules, entered = json.loads(done.stdout)
    return modules, entered


KERNELS = """
import json, sys
import numpy as np
import tnplan
from tnplan.common.kernels.kernel import Kernel
{call}
kernels = {{kernel for name, module in list(sys.modules.items()) if name.startswith("tnplan.")
           for kernel in vars(module).values() if isinstance(kernel, Kernel)}}
print(json.dumps(sorted(kernel.function.__name__ for kernel in kernels for _ in kernel.loaded)))
"""


def kernels_of_a_first_call(call: str) -> list[str]:
    """The names of kernels that this text calls in a process of its own, once for each types of arguments."""
    done = subprocess.run(
        [sys.executable, "-c", KERNELS.format(call=call)], capture_output=True, text=True, check=True
    )
    names: list[str] = json.loads(done.stdout)
    return names
