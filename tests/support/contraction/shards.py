"""A sharded result, put together again from its files."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.array_file import read_array
from tnplan.common.files import read_json
from tnplan.executor.contraction.run.result import FORMAT, VERSION, place_shard


def load_shards(index: str | Path) -> NDArray[Any]:
    """Put a sharded result together from its index file."""
    path = Path(index)
    document = read_json(path, FORMAT, VERSION)
    whole = np.empty(prod(document["shape"]), document["dtype"])
    for entry in document["shards"]:
        bounds = tuple((int(start), int(stop)) for start, stop in entry["box"])
        shard = read_array(path.with_name(entry["file"]))
        place_shard(whole, shard, bounds, document["mode_extents"])
    return whole.reshape(document["shape"])
