"""A contraction with a bond limit that all ranks call: its result, who searches, refusals; or a fault."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import networkx as nx
import numpy as np

import tnplan
from tests.support.bond_limited_cases import on_graph
from tnplan.executor.bond_limited.over_ranks import RankNetwork
from tnplan.executor.device.comm.heartbeat import world_communicator
from tnplan.jobs.arrays import bond_limited_contraction

OPTIONS: Any = {"max_bond": 8, "device": "cpu", "threads": 1, "mode": "compressed"}

if __name__ == "__main__":
    world = world_communicator()
    assert world is not None
    arguments = on_graph(nx.grid_2d_graph(6, 6), 4, np.random.default_rng(3), [-0.4])
    cut, fault = RankNetwork.compress, sys.argv[1:]

    def fails(self: RankNetwork, left: int, right: int, rank: int) -> None:
        if world.rank == 1 and fault == ["fails"]:
            raise MemoryError("of a test")
        if world.rank == 1 and fault == ["interrupt"]:
            os.kill(os.getpid(), signal.SIGINT)
        cut(self, left, right, rank)

    RankNetwork.compress = fails  # type: ignore[method-assign]
    orders, search = [], bond_limited_contraction.search_order

    def counted(*arguments: Any) -> Any:
        orders.append(arguments)
        return search(*arguments)

    bond_limited_contraction.search_order = counted
    found = tnplan.contract(*arguments, devices=world.size, **OPTIONS)
    n_orders = len(orders)
    alone = tnplan.contract(*arguments, **OPTIONS)
    hostile = [*arguments]
    hostile[2] = hostile[2] * np.nan
    refusals = []
    for given, options in (
        (hostile, {"devices": world.size}), (arguments, {"devices": 7}),
        (arguments, {"devices": world.size, "memory": 1000}),
    ):  # fmt: skip
        try:
            tnplan.contract(*given, **OPTIONS, **options)
        except tnplan.InputError as error:
            refusals.append(error.place.lstrip("-"))
    told = world.gather_objects((n_orders, found is not None, refusals))
    if world.rank == 0:
        ways = dict(zip(("orders", "results", "refusals"), map(list, zip(*told, strict=True)), strict=True))
        print(json.dumps({**ways, "relative": abs(found.value / alone.value - 1)}), flush=True)
