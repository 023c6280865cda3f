"""The operations that a file becomes, and classical values on the way: those that are known or measured.

A file is run while it is read. What it does is known as long as no measured bit decides it; where one does,
all ways are run, and what differs afterwards becomes a table over the bits. Knows no syntax.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tnplan.circuits.circuit import LARGEST_CIRCUIT
from tnplan.circuits.program import BitAssignment, Conditional, Measurement, Operation, WhileLoop, with_inner
from tnplan.circuits.qasm.values import Measured, Mistake, Type, applied, bit_value, measured, same

COPY = (False, True)
"""The table of an assignment that copies a bit."""


@dataclass(eq=False, slots=True)
class Memory:
    """A classical bit of the program; `value` is what it holds where that is known."""

    number: int
    value: bool | None = False
    is_written: bool = False


@dataclass(eq=False, slots=True)
class Slot:
    """A variable. A bit or a bool has a memory, given at its declaration or when it is needed first."""

    value: Any
    type: Type
    is_constant: bool = False
    memory: Memory | None = None

    @property
    def is_bit(self) -> bool:
        """Whether the value is one bit."""
        return self.type in (Type("bit"), Type("bool"))


@dataclass(frozen=True)
class Match:
    """The condition that some bits, too many for a table, have a value."""

    bits: tuple[int, ...]
    value: int


@dataclass
class _Way:
    """What was done on one way: operations, and the values of what changed."""

    operations: tuple[Operation, ...]
    changed: dict[Slot | Memory, Any]


@dataclass
class Recorder:
    """Operations with the place of each, and the variables that are alive."""

    operations: list[Operation] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    live: list[Slot] = field(default_factory=list)
    declared: list[Slot] = field(default_factory=list)
    assumed: dict[int, bool] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)
    """Qubits that may no longer be in |0>."""
    start: dict[int, bool] = field(default_factory=dict)
    """What memories start as, where it is not 0."""
    place: str = ""
    effects: int = 0
    n_scratch: int = 0
    barriers: list[int] = field(default_factory=list)
    """How many operations come before each barrier that is run in any case."""
    _journals: list[dict[Slot | Memory, Any]] = field(default_factory=list)

    @property
    def is_certain(self) -> bool:
        """Whether what is run now is run in any case."""
        return not self._journals

    def emit(self, operation: Operation) -> None:
        """Add an operation."""
        self.operations.append(operation)
        self.places.append(self.place)
        self.effects += 1

    def declare(self, slot: Slot, has_memory: bool = False) -> Slot:
        """Make a variable live; `has_memory` for a bit of the results."""
        if has_memory:
            slot.memory = Memory(len(self.declared))
            self.declared.append(slot)
            if len(self.declared) > LARGEST_CIRCUIT:
                raise Mistake(
                    f"needs more than {LARGEST_CIRCUIT} bits", f"use at most {LARGEST_CIRCUIT} bits"
                )
        self.live.append(slot)
        return slot

    def read(self, slot: Slot) -> Any:
        """The value of a variable, as far as it is known on this way."""
        value = slot.value
        return value.restricted(self.assumed) if self.assumed and isinstance(value, Measured) else value

    def write(self, slot: Slot | Memory, value: Any) -> None:
        """Set a variable, or what is known of a memory."""
        if self._journals:
            self._journals[-1].setdefault(slot, slot.value)
        slot.value = value
        self.effects += 1

    def measure(self, qubit: int, slot: Slot) -> None:
        """Measure a qubit into a bit."""
        memory = self._memory(slot)
        self._spill(memory, slot)
        self.emit(Measurement(qubit, memory.number))
        self._written(memory, None)
        self.write(slot, bit_value(memory.number))

    def measured_bit(self, qubit: int) -> Slot:
        """A new bit into which a qubit is measured."""
        slot = self.declare(Slot(False, Type("bit")))
        self.measure(qubit, slot)
        return slot

    def settle(self, slots: Sequence[Slot]) -> None:
        """Let the memories of bits hold their values."""
        for slot in slots:
            memory = self._memory(slot)
            if self._is_settled(slot, memory):
                continue
            # A known value of a bit that nothing has written yet, on a way that is run in any case,
            # costs no operation: the program starts with it.
            if isinstance(slot.value, bool) and self.is_certain and not memory.is_written:
                memory.value, memory.is_written = slot.value, True
                self.start[memory.number] = slot.value
                continue
            # Invariant: a memory is overwritten only after what other live variables read from it is copied.
            self._spill(memory, slot)
            value = slot.value
            if isinstance(value, Measured):
                self.emit(BitAssignment(memory.number, value.bits, tuple(map(bool, value.table))))
                self._written(memory, None)
                self.write(slot, bit_value(memory.number))
            else:
                self.emit(BitAssignment(memory.number, (), (bool(value),)))
                self._written(memory, bool(value))

    def branch(
        self, bits: Sequence[int], ways: Sequence[int], actions: Sequence[Callable[[], None]], assume: bool
    ) -> None:
        """Run actions[ways[row]] for each value `row` of measured bits; `assume` it while it runs."""
        # Each way is run from the same state and taken back. Then `_merge` writes what differs, and
        # the recorded operations become conditions.
        before = set(self.live)
        rows = {way: row for row, way in enumerate(ways)}
        done = [
            self._way(action, {bit: bool(rows[k] >> j & 1) for j, bit in enumerate(bits)} if assume else {})
            for k, action in enumerate(actions)
        ]
        copies = self._merge(tuple(bits), ways, done, before)
        # Copies come before the branch: ways may overwrite the very bits that tell afterwards which
        # way was taken.
        for old, copy in copies.items():
            self.emit(BitAssignment(copy, (old,), COPY))
        for operation in _tree(tuple(bits), [done[way].operations for way in ways]):
            self.emit(operation)

    def branch_match(self, match: Match, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """Run one action where many bits have a value, and another one where they have not."""
        before = set(self.live)
        done = [self._way(otherwise, {}), self._way(then, {})]
        self._merge(match.bits, (), done, before)
        if done[0].operations or done[1].operations:
            self.emit(Conditional(match.bits, match.value, done[1].operations, done[0].operations))

    def loop(self, condition: Callable[[], Any], body: Callable[[], None]) -> None:
        """Repeat while a condition holds that measured bits decide.

        Bits that the body sets are in their memories at the beginning of each round. Other variables may
        not be changed by it.
        """
        changing: list[Slot] = []
        # A fixed point: what a round changes is unknown before it, and unknown values may let it
        # change more. Variables are finite, so that this ends.
        while missed := self._changed_by(changing, body):
            changing += missed
        others = [slot for slot in changing if not slot.is_bit]
        if others:
            raise Mistake(
                f"changes a variable of type {others[0].type} in a loop whose number of rounds depends on "
                f"measured bits",
                "change only bits and bools in such a loop",
            )
        self.settle(changing)
        self._forget(changing)
        # Invariant: here, and at the end of each round (`full_round`), the memories of all changing bits
        # hold their values, so that one condition and one body serve all rounds.
        holds = condition()
        if not isinstance(holds, Measured):
            if holds:
                raise Mistake("repeats without end", "let the body change its condition")
            return
        true_rows = [row for row, value in enumerate(holds.table) if value]
        # A loop of the program compares bits with one value. A condition that is true for several
        # is computed into a scratch bit, before the loop and after each round.
        bits, value, again = holds.bits, true_rows[0], None
        if len(true_rows) > 1:
            again = self._new_memory().number
            bits, value = (again,), 1
            self.emit(BitAssignment(again, holds.bits, tuple(map(bool, holds.table))))

        def full_round() -> None:
            body()
            self.settle(changing)
            if again is not None:
                self.emit(BitAssignment(again, holds.bits, tuple(map(bool, holds.table))))

        way = self._way(full_round, {})
        self.emit(WhileLoop(bits, value, way.operations))
        self._forget(changing)

    def finished(self) -> tuple[tuple[Operation, ...], int, tuple[int, ...], int]:
        """All operations, the number of bits, what they start as, and how many of the last are scratch."""
        self.settle(self.declared)
        n = len(self.declared)
        operations = tuple(self.operations)
        # Scratch bits have negative numbers while a file is read, since the number of its own bits
        # is not known yet.
        if self.n_scratch:
            operations = tuple(_renumbered(operation, n) for operation in operations)
        start = [0] * n if self.start else []
        for number, value in self.start.items():
            if number >= 0:
                start[number] = int(value)
        scratch = {n - 1 - number: value for number, value in self.start.items() if number < 0 and value}
        if scratch:
            start += [int(scratch.get(n + k, False)) for k in range(self.n_scratch)]
        return operations, n + self.n_scratch, tuple(start), self.n_scratch

    def _memory(self, slot: Slot) -> Memory:
        if slot.memory is None:
            slot.memory = self._new_memory()
        return slot.memory

    def _new_memory(self) -> Memory:
        """A bit that results leave out; it has a negative number until all bits are known."""
        self.n_scratch += 1
        return Memory(-self.n_scratch)

    def _written(self, memory: Memory, value: bool | None) -> None:
        self.assumed.pop(memory.number, None)
        memory.is_written = True
        self.write(memory, value)

    @staticmethod
    def _is_settled(slot: Slot, memory: Memory) -> bool:
        """Whether a memory holds the value of its bit."""
        if isinstance(slot.value, Measured):
            return bool(slot.value == bit_value(memory.number))
        return memory.value is slot.value

    def _spill(self, memory: Memory, owner: Slot) -> None:
        """Copy a memory that is to be overwritten, if a value of another variable than its owner needs it."""
        number = memory.number
        if not memory.is_written:
            return
        using = [
            slot for slot in self.live
            if slot is not owner and isinstance(slot.value, Measured) and number in slot.value.bits
        ]  # fmt: skip
        if not using:
            return
        copy = self._new_memory()
        self.emit(BitAssignment(copy.number, (number,), COPY))
        self._written(copy, None)
        for slot in using:
            self.write(slot, _with_bits(slot.value, {number: copy.number}))

    def _way(self, action: Callable[[], None], assumed: Mapping[int, bool]) -> _Way:
        """Run an action, and take back what it changed."""
        operations, places, n_live = self.operations, self.places, len(self.live)
        before = dict(self.assumed)
        self.operations, self.places = [], []
        self.assumed.update(assumed)
        # The journal has the value of everything that is written for the first time on this way, so
        # that it can be taken back.
        self._journals.append({})
        action()
        journal = self._journals.pop()
        changed = {slot: slot.value for slot in journal}
        for slot, value in journal.items():
            slot.value = value
        done = tuple(self.operations)
        self.operations, self.places, self.assumed = operations, places, before
        del self.live[n_live:]
        return _Way(done, changed)

    def _changed_by(self, changing: Sequence[Slot], body: Callable[[], None]) -> list[Slot]:
        """The variables beside `changing` that a round of a loop sets, these having any value before it.

        Bits come first: where they are set, other variables may only be copied from them, once.
        """
        before, missed = list(self.live), []

        def trial() -> None:
            self._forget([slot for slot in changing if slot.is_bit])
            changed = self._way(body, {}).changed
            for slot in before:
                is_new = slot in changed and not same(changed[slot], slot.value)
                if slot not in changing and (is_new or slot.memory in changed):
                    missed.append(slot)

        # Inside another way: the trial's own changes, the forgetting included, are taken back.
        self._way(trial, {})
        return [slot for slot in missed if slot.is_bit] or missed

    def _forget(self, slots: Sequence[Slot]) -> None:
        """Bits whose memories hold what nobody knows."""
        for slot in slots:
            memory = self._memory(slot)
            self._spill(memory, slot)
            self._written(memory, None)
            self.write(slot, bit_value(memory.number))

    def _merge(
        self, bits: tuple[int, ...], ways: Sequence[int], done: list[_Way], before: set[Slot]
    ) -> dict[int, int]:
        """Set what the ways changed; gives the bits that have to be copied first, and their copies."""
        changed = list(dict.fromkeys(slot for way in done for slot in way.changed))
        memories = [slot for slot in changed if isinstance(slot, Memory)]
        overwritten = {memory.number for memory in memories}
        slots = [slot for slot in changed if isinstance(slot, Slot) and slot in before]
        needed = self._merge_in_memory(slots, done)
        copies: dict[int, int] = {}
        if needed:
            if not ways:
                raise Mistake(
                    f"changes variables under a condition on {len(bits)} measured bits",
                    "put only gates under this condition, or compare fewer bits",
                )
            # The chooser is a table from the deciding bits to ways. Bits that some way overwrites
            # are read from their copies.
            copies = {bit: self._new_memory().number for bit in bits if bit in overwritten}
            names = tuple(copies.get(bit, bit) for bit in bits)
            chooser = Measured(names, tuple(ways))
        for memory in memories:
            # What a memory holds is known after the branch where all ways leave the same.
            contents = {way.changed.get(memory, memory.value) for way in done}
            self.write(memory, contents.pop() if len(contents) == 1 else None)
        for slot in slots:
            values = [way.changed.get(slot, slot.value) for way in done]
            if slot in needed:
                self.write(slot, _chosen(chooser, values))
            elif all(same(values[0], value) for value in values):
                self.write(slot, values[0])
            else:
                assert slot.memory is not None
                self.write(slot, bit_value(slot.memory.number))
        return copies

    def _merge_in_memory(self, slots: Sequence[Slot], done: list[_Way]) -> set[Slot]:
        """Let each way leave bits in their memories where it can; gives the variables that need a table."""
        needed = set()
        for slot in slots:
            values = [way.changed.get(slot, slot.value) for way in done]
            if all(same(values[0], value) for value in values):
                continue
            memory = slot.memory
            own = None if memory is None else bit_value(memory.number)
            if memory is None or not all(isinstance(value, bool) or value == own for value in values):
                needed.add(slot)
                continue
            # A bit that is measured on some ways and constant on the others needs no table: the
            # other ways write the constant into its memory. That must not change what other
            # variables read from this memory.
            if own not in values or self._is_used(memory.number, slot, done):
                needed.add(slot)
                continue
            for way, value in zip(done, values, strict=True):
                if isinstance(value, bool) and way.changed.get(memory, memory.value) is not value:
                    way.operations += (BitAssignment(memory.number, (), (value,)),)
                    way.changed[memory] = value
                    memory.is_written = True
        return needed

    def _is_used(self, number: int, owner: Slot, done: list[_Way]) -> bool:
        """Whether the value of another variable depends on a bit, on any way."""
        return any(
            isinstance(value, Measured) and number in value.bits
            for slot in self.live
            if slot is not owner
            for value in (slot.value, *(way.changed.get(slot) for way in done))
        )


def _chosen(chooser: Measured, values: Sequence[Any]) -> Any:
    """The value of the way that the chooser says."""
    return applied(lambda way, *ways: ways[way], chooser, *values)


def _with_bits(value: Measured, names: Mapping[int, int]) -> Any:
    """A value with other numbers for its bits."""
    return measured(tuple(names.get(bit, bit) for bit in value.bits), value.table)


def _tree(bits: tuple[int, ...], leaves: Sequence[tuple[Operation, ...]]) -> tuple[Operation, ...]:
    """Conditions that do leaves[row] where the bits have the value `row`."""
    if all(leaf is leaves[0] for leaf in leaves):
        return leaves[0]
    kinds = {id(leaf): leaf for leaf in leaves}
    if len(kinds) == 2:
        for leaf, other in (tuple(kinds.values())[::-1], tuple(kinds.values())):
            rows = [row for row, branch in enumerate(leaves) if branch is leaf]
            if len(rows) == 1 and (leaf or len(leaves) > 2):
                return (Conditional(bits, rows[0], leaf, other),)
    low, high = _tree(bits[1:], leaves[::2]), _tree(bits[1:], leaves[1::2])
    return (Conditional(bits[:1], 1, high, low),) if low or high else ()


def _renumbered(operation: Operation, n: int) -> Operation:
    """An operation with scratch bit -k as bit n - 1 + k."""

    def number(bit: int) -> int:
        return bit if bit >= 0 else n - 1 - bit

    if isinstance(operation, Measurement):
        return replace(operation, bit=number(operation.bit))
    if isinstance(operation, BitAssignment):
        return replace(operation, bit=number(operation.bit), bits=tuple(map(number, operation.bits)))
    if isinstance(operation, Conditional | WhileLoop):
        operation = replace(operation, bits=tuple(map(number, operation.bits)))
    return with_inner(operation, lambda inside: tuple(_renumbered(item, n) for item in inside))
