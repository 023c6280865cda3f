"""The terms of a rank on its GPU, changed without waiting for it. Imports CuPy's adapter when it is made.

Every change is an event, launched at once, Cliffords in a row when something else follows; what it did stands
in a log on the GPU. `settle` waits, enters the log in the ledger, and where rows found no room, makes room
and does the rest again. It is called when the log is full and wherever the host needs a number. With ranks,
each has one shard, and branches for another rank make the host wait for their number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from tnplan.executor.device.protocols.communicator import Communicator, messages
from tnplan.executor.observables.pauli_sum import PauliSum, commuting_groups, pack
from tnplan.executor.pauli.algebra.gates import Clifford, TransferMatrix, word_masks
from tnplan.executor.pauli.algebra.tableau import CliffordLayer, clifford_layer
from tnplan.executor.pauli.cuda.ledger import EventLedger
from tnplan.executor.pauli.sharding.linear_hash import LinearHash, place_of
from tnplan.executor.pauli.sharding.resharding import (
    LEAST_ROTATIONS,
    SAMPLE_TERMS,
    SHORT_RUN,
    Costs,
    LocalRun,
    Sample,
)
from tnplan.executor.pauli.terms.ledger import Ledger, Loss
from tnplan.executor.pauli.terms.protocol import RotationBatch, Terms
from tnplan.executor.pauli.terms.selection import TermCap
from tnplan.executor.pauli.terms.truncation import NO_LIMIT, TermLimits
from tnplan.planner.common.arrays import Array
from tnplan.planner.common.errors import InputError

Again = Callable[[int, int], None]
"""A launch; from an event on, if it is not 0, where a first attempt found no room and left so many rows."""

COSTS = Costs(exchange_s=5e-4, move_s=4e-3, term_s=2e-10, alone_below=1 << 22)
"""Seconds of exchanges and moves between GPUs, as measured over NVLink."""
MOVED_TERMS = 1 << 18
"""Terms that a rank gives to others at once, at most; or a share of its rows, `MOVED_ROWS_SHARE`."""
MOVED_ROWS_SHARE = 16
FOURFOLD_BELOW = 1 << 21
"""Rows below which arrays grow fourfold, else twofold."""
MOST_LAYERS = 1024
"""Cliffords in a row that one launch applies, at most."""
MOST_ROTATIONS = 128
"""Rotations that are launched at once, at most."""
ANY_FREQUENCY = TermLimits(0.0, NO_LIMIT, NO_LIMIT, NO_LIMIT - 1, False)
"""No limit, where frequencies must be followed since it is not known whether they are one."""


class GpuTerms(Terms):
    """The terms of this rank on the current GPU, and the ledger of what happened to them.

    Coefficients are real. A term whose coefficient is 0 does not count as one.
    """

    def __init__(self, start: PauliSum, ranks: Communicator | None = None) -> None:
        from tnplan.executor.pauli.cuda import table as table_module

        if np.iscomplexobj(start.coefficients):
            raise InputError("observable", "has complex coefficients", "give its two parts one by one")
        self.n_qubits, self.ranks = start.n_qubits, ranks
        self.rank, n_ranks = place_of(ranks)
        self.linear_hash, self.costs = LinearHash(start.n_qubits, n_ranks.bit_length() - 1), COSTS
        if start.n_terms < self.costs.alone_below:
            self.linear_hash.masks[:] = 0
        local = self.linear_hash.of(start.keys) == self.rank
        self.adapter = table_module
        self.table = table_module.GpuTable(start.keys[local], start.coefficients[local])
        self.event_ledger = EventLedger(int(np.count_nonzero(local)))
        self.ledger, self.most = self.event_ledger.ledger, table_module.MOST_ROWS
        self.event = self.moved_bytes = 0
        self.queue: list[tuple[int, Again]] = []
        """Launches since the log began, and their last events."""
        self.maps: list[CliffordLayer] = []
        """Cliffords of the newest event that are not launched yet."""
        self.is_stale = False
        """Whether rows have changed since they were entered into the table."""
        self.within: TermLimits | None = None
        """All terms are within these limits."""
        self.room: int | None = None
        """Terms that the memory holds, if that is bounded."""
        self.term_cap: TermCap | None = None
        self.may_be_past = False
        """Whether there may be more terms than the cap allows."""

    def continue_from(self, ledger: Ledger, frequencies: Array) -> None:
        """Go on with a ledger, and with the frequencies of the terms in the order in which they were given."""
        self.ledger = self.event_ledger.ledger = ledger
        self.table.frequencies[: len(frequencies)].set(np.ascontiguousarray(frequencies))

    def close(self) -> None:
        """Give the memory back."""
        self.queue.clear()
        self.table.close()

    @property
    def n(self) -> int:
        """How many terms this rank has; waits."""
        self.settle()
        return self.event_ledger.live

    @property
    def size_bytes(self) -> int:
        """What this rank's arrays take, and took while words moved."""
        return self.table.size_bytes + self.moved_bytes

    def at_once(self, room: int | None) -> int:
        """How many rotations may be launched at once; with several GPUs those that fit if each doubles."""
        if room is None:
            return MOST_ROTATIONS
        if self.ranks is None:
            return MOST_ROTATIONS if 2 * self.n <= room else 0
        n = max(1, self.all_ranks(self.n))
        return min(MOST_ROTATIONS, max(0, (room // n).bit_length() - 1))

    def cap(self, cap: TermCap) -> bool:
        """Have no more terms than `cap` allows after any step, on one GPU."""
        if self.ranks is not None:
            return False
        self.term_cap, self.most = cap, min(self.most, 2 * cap.n_terms)
        return True

    def limit(self, n_terms: int) -> None:
        """Do not double arrays past so many terms."""
        self.room, self.most = n_terms, min(n_terms, self.most)
        self.costs = self.costs._replace(alone_below=min(self.costs.alone_below, n_terms // 4))

    def count(self, generator: Array) -> int:
        """How many terms of this rank a rotation about `generator` would split."""
        return self.table.count(self._settled(), generator)

    def reshard(self, generators: Array) -> int:
        """Spread the terms so that these rotations, which come next, need few exchanges; collective.

        Returns how many of them, at least 1, are to be done before the next call.
        """
        is_alone = not self.linear_hash.masks.any()
        if len(generators) < LEAST_ROTATIONS and not is_alone:
            return max(1, len(generators))
        if is_alone and self.all_ranks(self.n) < self.costs.alone_below:
            return SHORT_RUN
        run = LocalRun(generators, self.linear_hash.masks)
        rows, live = self._settled(), self.event_ledger.live
        keys = self.table.sample(rows, max(1, live * self.n_ranks // SAMPLE_TERMS))
        return self.spread(run, Sample(keys, live), self.costs)

    def rotate(self, generator: Array, cosine: float, sine: float, cut: float) -> None:
        """Rotate about the packed word `generator`; branches below `cut` are dropped."""
        distances = self.linear_hash.of(generator[None])
        one = RotationBatch(
            generator[None], np.array([cosine]), np.array([sine]), np.zeros(1, bool), distances
        )
        self._rotate_in_shard(one, cut, None)
        self.may_be_past = True

    def rotate_many(self, rotations: RotationBatch, cut: float, limits: TermLimits) -> int:
        """Rotations one after another, each a step; after those that are `due` terms past the limits go."""
        if self.ranks is None and (self.room is not None or self.term_cap is not None):
            return self._rotate_bounded(rotations, cut, limits)
        distances = self.linear_hash.of(rotations.generators)
        rotations, first = rotations._replace(distances=distances), 0
        while first < len(distances):
            last = first + 1
            if not distances[first]:
                while last < len(distances) and not distances[last]:
                    last += 1
            self._rotate_in_shard(rotations.between(first, last), cut, limits)
            first = last
        return len(distances)

    def transfer(self, step: TransferMatrix, cut: float) -> None:
        """Apply a transfer; contributions below `cut` to other words are dropped."""
        n = self._settled()
        self.within = None
        qubits, words, parts = np.array(step.qubits), np.arange(len(step.matrix)), []
        for d in words[1:]:
            weights = step.matrix[words ^ d, words]
            if not np.any(weights):
                continue
            rows, values, counts = self.table.branches(n, qubits, weights, cut, self._begin("part"))
            generator = pack(*word_masks(step.qubits, int(d)), self.n_qubits)
            parts.append((generator, (rows ^ self.table.to_gpu(generator)[0], values, counts)))
        event, splits = self._begin("scale"), np.count_nonzero(step.matrix, axis=0) > 1
        self._do(lambda *_: self.table.scale(qubits, np.diag(step.matrix), splits, event))
        for generator, lists in parts:
            self._catch_up()
            self._merge(lists, self.linear_hash.distance(generator))
        self.may_be_past = True

    def clifford(self, gates: Sequence[Clifford]) -> None:
        """Apply Cliffords one after another, in one pass."""
        if not self.maps or len(self.maps) == MOST_LAYERS:
            self._begin("clifford")
        self.maps.append(clifford_layer(tuple(gates), self.n_qubits))
        for gate in gates:
            self.linear_hash.carry(gate)

    def sweep(self, limits: TermLimits) -> None:
        """Drop terms past the limits."""
        event = self._begin("sweep")
        past = self._limits(limits, event)
        self._do(lambda *_: self.table.sweep(past))
        self.within = limits

    def keep_largest(self, count: int) -> None:
        """Keep the `count` largest magnitudes; of equal ones the least words. For one GPU."""
        if self.all_ranks(self.n) <= count:
            return
        if self.ranks is not None:
            raise InputError(
                "several GPUs", "cannot keep the largest terms (--max-terms, --when-full truncate)",
                "use a cut, or one GPU",
            )  # fmt: skip
        self._keep_largest(count)

    def _keep_largest(self, count: int) -> None:
        chosen, l1, squares, dropped = self.table.largest(self._settled(), count)
        self.ledger.losses.append(Loss(l1, squares, dropped))
        self._keep(chosen)

    def end_step(self) -> None:
        """Enter the step in the ledger, when its numbers are known."""
        self.event_ledger.note("end", self.event)
        if self.term_cap is not None and self.may_be_past:
            self.settle()
            self._hold_cap()

    def local_terms(self) -> PauliSum:
        """The terms of this rank, in rising order of their words."""
        return PauliSum(self.n_qubits, *self.table.terms(self._settled())).sorted()

    def in_bits(self, bits: str | None = None) -> float:
        """This rank's part of the value in a computational state; None is all 0."""
        ones = pack(int((bits or "0")[::-1], 2), 0, self.n_qubits)
        return self.table.in_bits(self._settled(), np.ascontiguousarray(ones[: len(ones) // 2]))

    def settle(self) -> None:
        """Wait for all events, and enter them in the ledger."""
        if not self.event and not self.event_ledger.notes:
            return
        self._launch_maps()
        self._enter(self._catch_up(self.event + 1))

    def _enter(self, log: Array) -> None:
        """Enter the log in the ledger, and begin a new one."""
        self.event_ledger.enter(log)
        n, live = rows_after(log[self.event]), self.event_ledger.live
        self.queue.clear()
        self.event = 0
        wasted = 3 * n > 4 * live and n > self.adapter.SMALLEST_CAPACITY
        if wasted or (n > live and n + live > self.most):
            self._close_gaps(n)
        else:
            self.table.restart(n, max(0, n - live))

    def _begin(self, kind: str) -> int:
        """The number of a new event."""
        self._launch_maps()
        if self.event == self.adapter.LOG_EVENTS - 1:
            self.settle()
        self.event += 1
        self.event_ledger.note(kind, self.event)
        return self.event

    def _do(self, launch: Again) -> None:
        """Launch for the newest event; again where an event before it found no room."""
        self.queue.append((self.event, launch))
        launch(0, 0)

    def _launch_maps(self) -> None:
        """Launch the Cliffords that are not launched yet."""
        if not self.maps:
            return
        distinct = list({id(one): one for one in self.maps}.values())
        numbers = {id(one): number for number, one in enumerate(distinct)}
        order = np.array([numbers[id(one)] for one in self.maps], np.int32)
        *maps, order = self.table.to_gpu(
            *(np.stack([getattr(one, name) for one in distinct]) for name in ("images", "powers", "touched")),
            order,
        )  # fmt: skip
        event = self.event
        self._do(lambda *_: self.table.clifford(maps, order, event))
        self.maps.clear()
        self.is_stale, self.within = True, None

    def _refresh(self) -> None:
        """Enter all rows into the table, if they have changed."""
        if self.is_stale:
            event = self.event
            self._do(lambda *_: self.table.rebuild(event))
            self.is_stale = False

    def _limits(self, limits: TermLimits, event: int) -> Any:
        """The struct Limits."""
        frequency = -1 if limits.max_frequency == NO_LIMIT else limits.max_frequency
        values = (
            limits.merged_cut, limits.max_weight, limits.max_xy, frequency, limits.has_letters, event,
        )  # fmt: skip
        return np.array([values], self.adapter.LIMITS)[0]

    def _rotate_in_shard(self, rotations: RotationBatch, cut: float, limits: TermLimits | None) -> None:
        """Rotations that all stay in their shards, or one that does not; steps if there are `limits`."""
        generator, cosine, sine, is_due, across = (array[0] for array in rotations)
        if across:
            event = self._begin("quarter" if cosine == 0 else "turn")
            self._catch_up()
            lists = self.table.split(generator, cosine, sine, cut, event)
            self._merge(lists, int(across))
            self.within = None
            if limits is not None:
                if is_due:
                    self.sweep(limits)
                self.end_step()
            return
        done, n_rotations = 0, len(rotations.due)
        while done < n_rotations:
            self._launch_maps()
            if self.event == self.adapter.LOG_EVENTS - 1:
                self.settle()
            self._refresh()
            last = min(n_rotations, done + self.adapter.LOG_EVENTS - 1 - self.event)
            self._launch_rotations(rotations.between(done, last), cut, limits)
            done = last

    def _launch_rotations(self, rotations: RotationBatch, cut: float, limits: TermLimits | None) -> None:
        """Launch rotations at once; the log has room for them."""
        table, first, sweeps = self.table, self.event + 1, self._sweeps(rotations, limits)
        self.within = limits if rotations.due[-1] else None
        quarters = rotations.cosines == 0
        self.event += len(sweeps)
        if limits is None:
            self.event_ledger.note("quarter" if quarters[0] else "turn", first)
        else:
            self.event_ledger.note("steps", first, quarters, sweeps)
        past = self._limits(limits or ANY_FREQUENCY, 0)

        @cache
        def structs(members: int) -> Array:
            groups = commuting_groups(rotations.generators, members, sweeps == 2)
            return table.rotation_structs(rotations, cut, sweeps, groups)

        self._do(
            lambda event, rows: table.rotate_all(
                structs(table.members), max(event - first, 0), first, rows, past
            )
        )

    def _sweeps(self, rotations: RotationBatch, limits: TermLimits | None) -> Array:
        """Which sweep follows each rotation, as the kernel numbers them."""
        is_within = np.concatenate([[self.within == limits], rotations.due[:-1]])
        return np.where(rotations.due, np.where(is_within, 1, 2), 0)

    def _rotate_bounded(self, rotations: RotationBatch, cut: float, limits: TermLimits) -> int:
        """Rotations while the terms fit in the memory if the next one doubles them; holds the cap."""
        done = 0
        while done < len(rotations.due):
            rows = self._settled()
            bounds = [self.term_cap.n_terms] if self.term_cap is not None else []
            bounds += [self.room // 2] if self.room is not None else []
            least = min(bounds)
            if self.room is not None and 2 * self.event_ledger.live > self.room:
                assert done, "at_once allows none then"
                break
            if rows > least:
                self._close_gaps(rows)
                rows = self.event_ledger.live
            done += self._launch_bounded(rotations.between(done), cut, limits, rows, least)
            self._hold_cap()
        return done

    def _launch_bounded(
        self, rotations: RotationBatch, cut: float, limits: TermLimits, rows: int, most: int
    ) -> int:
        """Rotations of so many rows until there are more than `most` after one; how many. The log is new.

        Groups are so short that they do not lead past twice as many.
        """
        table = self.table
        self._refresh()
        rotations = rotations.between(0, self.adapter.LOG_EVENTS - 1)
        sweeps, past = self._sweeps(rotations, limits), self._limits(limits, 0)
        count, first, resumed = len(sweeps), 0, 0
        members = min(table.members, max(1, (2 * most // max(1, rows)).bit_length() - 1))
        groups = commuting_groups(rotations.generators, members, sweeps == 2)
        structs = table.rotation_structs(rotations, cut, sweeps, groups)
        while True:
            table.rotate_all(structs, first, 1, resumed, past, 2 * most >> members)
            stalled, log = table.read_all(count + 1)
            wanted, there = int(log["n"][stalled]), table.capacity
            if not stalled or wanted <= there:
                break
            self._grow(there, wanted, wanted - there)
            first, resumed = stalled - 1, there
        self.event = stalled - 1 if stalled else count
        self.within = limits if rotations.due[self.event - 1] else None
        self.event_ledger.note("steps", 1, rotations.cosines[: self.event] == 0, sweeps[: self.event])
        done = self.event
        self._enter(log)
        return done

    def _hold_cap(self) -> None:
        """Drop terms past the limits and then the smallest, or resample, where there are too many. Settled."""
        cap, self.may_be_past = self.term_cap, False
        if cap is None or self.event_ledger.live <= cap.n_terms:
            return
        if self.within != cap.limits:
            self.sweep(cap.limits)
            self.settle()
        if self.event_ledger.live > cap.n_terms:
            if cap.resampler is None:
                self._keep_largest(cap.n_terms)
            else:
                self._keep(self.table.resample(self._settled(), cap.resampler, cap.n_terms))
        self.event_ledger.amend()

    def _merge(self, lists: Any, across: int) -> None:
        """Take branches to the rank that owns their words. All events before are done."""
        if across:
            lists = self.exchange(lists, self.rank ^ across)
        listed = len(lists[1])
        if not listed:
            return
        event = self._begin("meet")
        n = self._rows_after(event - 1)
        if n + listed > self.table.capacity:
            self._grow(n, n + listed)
        elif self.is_stale:
            self.table.rebuild(event - 1)
        self.is_stale = False
        self.table.merge_rows(lists, event)

    def exchange(self, lists: Any, peer: int) -> Any:
        """The peer's branches for this rank."""
        assert self.ranks is not None
        arrived = self.table.empty(self.ranks.gather_objects(len(lists[1]))[peer])
        self.ranks.exchange(messages(peer, lists), messages(peer, arrived))
        return arrived

    def move(self, masks: Array) -> None:
        """Take every word to the rank that owns it by other masks; collective. The log is new."""
        assert self.ranks is not None
        self.linear_hash.masks = masks.copy()
        table, rank, n = self.table, self.rank, self._rows_after(0)
        peers = [peer for peer in range(self.ranks.size) if peer != rank]
        counted = self.ranks.gather_objects((table.leave(n, masks, rank, 0)[2], table.capacity))
        goes = np.array([leaves for leaves, _ in counted])
        share = max(MOVED_TERMS, min(capacity for _, capacity in counted) // MOVED_ROWS_SHARE) // len(peers)
        most = max(1, min(int(goes.max()), share))
        rounds = np.arange(0, goes.max(), most)
        parts = np.clip(goes - rounds[:, None, None], 0, most)
        surplus = int((parts[:, :, rank] - parts[:, rank]).clip(0).sum())
        if n + surplus > table.capacity > self.event_ledger.live + surplus:
            self._close_gaps(n)
            n = self.event_ledger.live
        elif n + surplus > table.capacity:
            self._grow(n, n + surplus)
        self.moved_bytes = max(self.moved_bytes, 2 * most * len(peers) * table.listed_bytes)
        for part in parts:
            arrived = [table.empty(int(part[peer, rank])) for peer in peers]
            left, places, _ = table.leave(n, masks, rank, most)
            sends, receives = (
                [one for peer, arrays in zip(peers, lists, strict=True) for one in messages(peer, arrays)]
                for lists in (left, arrived)
            )
            self.ranks.exchange(sends, receives)
            for lists, free in zip(arrived, places, strict=True):
                n = table.join(n, lists, free)
        self._close_gaps(n)

    def _catch_up(self, last: int = 0) -> Array:
        """Wait for all events; where one found no room, make room and launch it and what follows again.

        So too where rotations wait for the form that is for more rows. Returns the log before event `last`.
        """
        while True:
            stalled, log = self.table.read_all(last)
            if not stalled:
                return log
            wanted, there = int(self.table.read(stalled)["n"]), self.table.capacity
            if wanted > there:
                self._grow(there, wanted, wanted - there)
            else:
                self.table.choose_form(wanted)
                self.table.resume()
            again = [launch for event, launch in self.queue if event >= stalled]
            again[0](stalled, there if wanted > there else 0)
            for launch in again[1:]:
                launch(0, 0)

    def _grow(self, n: int, least: int, failures: int = 0) -> None:
        capacity = self.table.capacity
        times = 2 if capacity >= FOURFOLD_BELOW else 4
        self.table.grow(n, max(least, min(times * capacity, self.most)), failures)

    def _rows_after(self, event: int) -> int:
        return rows_after(self.table.read(event))

    def _settled(self) -> int:
        """The rows of the table, when all is done and the log is new."""
        self.settle()
        return self._rows_after(0)

    def _close_gaps(self, n: int) -> None:
        self.event_ledger.live = self.table.close_gaps(n)
        self.is_stale = False

    def _keep(self, chosen: Any) -> None:
        self.table.keep(chosen)
        self.event_ledger.live = len(chosen)
        self.is_stale = False


def rows_after(event: Any) -> int:
    """How many rows an event left."""
    return int(event["n"] + event["added"] - event["packed"])
