"""A simplified `Graph` comes in; a `Plan` goes out: kernels, library calls and buffers, in the order they run."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kernelwright.ir.nodes import (
    Broadcast,
    Const,
    Contract,
    Conv,
    Graph,
    Input,
    Item,
    Map,
    Node,
    Opaque,
    Param,
    Reshape,
    Table,
    Update,
)
from kernelwright.plan.fuse import draws_of, ends_of, fuse, spread_cheap_values, users_of
from kernelwright.plan.layouts import base_of, layout_of
from kernelwright.plan.names import Namer
from kernelwright.plan.steps import (
    Buffer,
    CopyBack,
    Kernel,
    Layout,
    Library,
    Materialise,
    Plan,
    Region,
    Step,
    contiguous,
)

# Operators whose results are always new memory, so that a later kernel may write over them.
FRESH = frozenset(
    f"aten.{name}"
    for name in (
        "_native_batch_norm_legit_functional.default layer_norm.default group_norm.default instance_norm.default "
        "softmax.int log_softmax.int max_pool1d.default max_pool2d.default max_pool3d.default avg_pool1d.default "
        "avg_pool2d.default avg_pool3d.default native_dropout.default cumsum.default cumprod.default"
    ).split()
)

BATCH_NORM = "aten._native_batch_norm_legit_functional.default"


@dataclass(frozen=True, slots=True)
class Unit:
    """What runs at once: a group of Maps, or one node that PyTorch computes, with the bias it adds."""

    position: int
    maps: tuple[Map, ...] = ()
    library: Node | None = None
    bias: Node | None = None
    biased: Map | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        own = (*self.maps, self.library, self.biased)
        return tuple(n for n in own if n is not None)

    @property
    def operands(self) -> tuple[Node, ...]:
        inside = set(self.nodes)
        return tuple(x for n in self.nodes for x in n.operands if x not in inside)


def plan(graph: Graph) -> Plan:
    """What is fused, in which order it runs, and where every value lies."""
    graph = spread_cheap_values(with_stable_updates(graph))
    units = ordered(graph, units_of(graph))
    return Placement(graph, units).placed()


def with_stable_updates(graph: Graph) -> Graph:
    """An updated value that is itself state which is updated is copied first, or a later update would change it."""
    targets = {update.target for update in graph.updates}
    updates = tuple(
        Update(u.target, Map("identity", (u.value,)) if base_of(u.value) in targets else u.value) for u in graph.updates
    )
    return replace(graph, updates=updates)


def units_of(graph: Graph) -> list[Unit]:
    position = {node: i for i, node in enumerate(graph.nodes())}
    units: list[Unit] = []
    taken: set[Node] = set()
    for group in fuse(graph):
        biased = library_bias(group, graph)
        if biased is None:
            units.append(Unit(max(position[n] for n in group), maps=group))
        else:
            core, bias = biased
            taken.add(core)
            units.append(Unit(position[group[-1]], library=core, bias=bias, biased=group[-1]))
    for node in graph.nodes():
        if isinstance(node, (Contract, Conv, Opaque)) and node not in taken:
            units.append(Unit(position[node], library=node))
    return units


def library_bias(group: Sequence[Map], graph: Graph) -> tuple[Node, Node] | None:
    """The contraction and its bias, if the group does nothing but add that bias: PyTorch does it in the same call."""
    match group:
        case [Map("add", (Contract() | Conv() as core, Broadcast(bias, _)))]:
            alone = users_of(graph)[core] == [group[0]] and core not in ends_of(graph)
            vector = bias_vector(core, bias)
            return (core, vector) if alone and vector is not None else None
    return None


def bias_vector(core: Node, bias: Node) -> Node | None:
    """The bias as PyTorch takes it: one value an output channel."""
    if isinstance(core, Conv):
        column = (core.shape[1], *(1,) * len(core.stride))
        fits = isinstance(bias, Reshape) and bias.shape == column and len(bias.x.shape) == 1
        return bias.x if fits and isinstance(bias, Reshape) else None
    assert isinstance(core, Contract)
    a, b, result = core.labels
    is_linear = len(b) == 2 and a[-1] == b[1] and result == a[:-1] + b[0]
    return bias if is_linear and bias.shape == core.shape[-1:] else None


def ordered(graph: Graph, units: Sequence[Unit]) -> list[Unit]:
    """The units so that each comes after what it needs, and otherwise as forward() has them."""
    maker = {node: unit for unit in units for node in unit.nodes}
    needs: dict[Unit, set[Unit]] = {}
    for unit in units:
        sources = (made_by(base_of(x)) for x in unit.operands)
        needs[unit] = {maker[s] for s in sources if s in maker} - {unit}
    draws = [maker[d] for d in draws_of(graph)]
    for earlier, later in zip(draws, draws[1:], strict=False):
        needs[later].add(earlier)
    waiting: dict[Unit, list[Unit]] = defaultdict(list)
    for unit, required in needs.items():
        for other in required:
            waiting[other].append(unit)
    missing = {unit: len(required) for unit, required in needs.items()}
    number = {unit: i for i, unit in enumerate(units)}
    ready = [(unit.position, number[unit]) for unit in units if not missing[unit]]
    heapq.heapify(ready)
    order: list[Unit] = []
    while ready:
        unit = units[heapq.heappop(ready)[1]]
        order.append(unit)
        for other in waiting[unit]:
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(ready, (other.position, number[other]))
    assert len(order) == len(units), "units wait for each other"
    return order


def made_by(node: Node) -> Node:
    """An Item is made by its Opaque."""
    return node.source if isinstance(node, Item) else node


class Placement:
    """Gives every value its buffer while it turns units into steps, one after the other."""

    def __init__(self, graph: Graph, units: Sequence[Unit]) -> None:
        self.graph = graph
        self.units = units
        self.namer = Namer(graph)
        self.places: dict[Node, Buffer] = {}
        self.steps: list[Step] = []
        self.fresh: set[str] = set()
        self.done_updates: set[Update] = set()
        self.users = users_of(graph)
        self.last_use = last_uses(graph, units)
        targets = [update.target for update in graph.updates]  # one may be written without ever being read
        for node in dict.fromkeys((*graph.nodes(), *targets)):
            if isinstance(node, (Input, Param)):
                self.places[node] = Buffer(self.namer.leaf(node), node.shape, node.dtype, node.strides, node)
            elif isinstance(node, Table):
                self.materialise(node)

    def placed(self) -> Plan:
        for number, unit in enumerate(self.units):
            if unit.library is not None:
                self.add_library(unit)
            else:
                self.add_kernel(number, unit)
        for update in self.graph.updates:
            if update not in self.done_updates:
                self.steps.append(CopyBack(self.places[update.target], update.value))
        return Plan(self.graph, tuple(self.steps), dict(self.places))

    def add_library(self, unit: Unit) -> None:
        node = unit.library
        assert node is not None
        result = unit.biased or node
        if not isinstance(node, Opaque) or len(node.results) == 1:
            self.places[result] = self.made(self.namer.library(node), result)
            self.note_fresh(node, result)
            self.steps.append(Library(node, unit.bias, (self.places[result],)))
            return
        items = {n.index: n for n in self.users[node] if isinstance(n, Item)}
        in_place = self.updates_statistics(node, items)
        buffers: list[Buffer | None] = []
        for index in range(len(node.results)):
            item = items.get(index)
            if item is None or (in_place and index != 0):
                buffers.append(None)
                continue
            self.places[item] = self.made(self.namer.library(node), item)
            self.note_fresh(node, item)
            buffers.append(self.places[item])
        self.steps.append(Library(node, None, tuple(buffers), in_place))

    def note_fresh(self, node: Node, result: Node) -> None:
        if isinstance(node, (Contract, Conv)) or (isinstance(node, Opaque) and node.target in FRESH):
            self.fresh.add(self.places[result].name)

    def updates_statistics(self, node: Opaque, items: Mapping[int, Item]) -> bool:
        """Batch norm in train mode whose new statistics go straight back where they came from, and nowhere else."""
        if node.target != BATCH_NORM or 1 in items or 2 in items:
            return False
        wanted = [Update(node.args[3 + i], items[3 + i]) for i in (0, 1) if 3 + i in items]  # type: ignore[arg-type]
        users = self.users
        private = all(users[u.target] == [node] and users[u.value] == [] for u in wanted)
        if len(wanted) != 2 or not private or not all(u in self.graph.updates for u in wanted):
            return False
        self.done_updates.update(wanted)
        return True

    def add_kernel(self, number: int, unit: Unit) -> None:
        shape = unit.maps[-1].shape
        inside = set(unit.maps)
        loads: dict[Node, Layout] = {}
        for node in unit.maps:
            for x in node.args:
                if x not in inside and x not in loads and not isinstance(base_of(x), Const):
                    loads[x] = self.load(x, shape)
        stored = [n for n in unit.maps if self.is_stored(n, unit)]
        writes_over: dict[str, str] = {}
        stores: list[tuple[Node, Layout]] = []
        for node in stored:
            buffer = self.store_buffer(number, unit, node, loads, writes_over)
            self.places[node] = buffer
            stores.append((node, Layout(buffer, shape, contiguous(shape), 0)))
        region = Region(shape, tuple(loads.items()), unit.maps, tuple(stores))
        self.steps.append(Kernel(self.namer.kernel(unit.maps), region, writes_over))

    def load(self, x: Node, shape: tuple[int, ...]) -> Layout:
        layout = layout_of(x, self.places)
        if layout is None:
            self.materialise(x)
            layout = layout_of(x, self.places)
            assert layout is not None
        if not layout.shape:
            return Layout(layout.buffer, shape, (0,) * len(shape), layout.offset)
        return layout

    def is_stored(self, node: Map, unit: Unit) -> bool:
        if node.shape != unit.maps[-1].shape:
            return False
        inside = set(unit.maps)
        return node in ends_of(self.graph) or any(u not in inside for u in self.users[node])

    def store_buffer(
        self, number: int, unit: Unit, node: Map, loads: Mapping[Node, Layout], writes_over: dict[str, str]
    ) -> Buffer:
        """State in its own place, else the memory of an operand that dies here, else new memory."""
        for update in self.graph.updates:
            if update.value is node and self.may_write_state(number, node, update, loads):
                self.done_updates.add(update)
                return self.places[update.target]
        buffer = self.made(self.namer.kernel_result(node), node)
        over = self.dying(number, buffer, loads, set(writes_over.values()))
        if over is not None:
            writes_over[buffer.name] = over
        self.fresh.add(buffer.name)
        return buffer

    def may_write_state(self, number: int, node: Map, update: Update, loads: Mapping[Node, Layout]) -> bool:
        """Nothing reads the old state later, this kernel reads it element by element, and the value is not returned."""
        target = self.places[update.target]
        only_use = self.users[node] == [] and node not in self.graph.outputs
        ends = [u for u in self.graph.updates if u.value is node]
        elementwise = all(self.is_whole(layout) for layout in loads.values() if layout.buffer == target)
        last = self.last_use.get(update.target, -1) <= number
        read_at_end = any(base_of(n) is update.target for n in ends_of(self.graph))
        return (
            only_use
            and len(ends) == 1
            and elementwise
            and last
            and not read_at_end
            and target.strides == contiguous(target.shape)
            and target.dtype is node.dtype
            and target.shape == node.shape
        )

    def dying(self, number: int, buffer: Buffer, loads: Mapping[Node, Layout], taken: set[str]) -> str | None:
        """The first loaded buffer of the same type that this kernel is the last to use."""
        for x, layout in loads.items():
            old = layout.buffer
            same = old.shape == buffer.shape and old.dtype is buffer.dtype and old.name not in taken
            every = [other for other in loads.values() if other.buffer == old]
            if (
                same
                and old.name in self.fresh
                and self.last_use[base_of(x)] == number
                and all(self.is_whole(other) for other in every)
            ):
                return old.name
        return None

    @staticmethod
    def is_whole(layout: Layout) -> bool:
        """Element i of the kernel is element i of the buffer."""
        return layout.shape == layout.buffer.shape and layout.strides == layout.buffer.strides and not layout.offset

    def materialise(self, node: Node) -> None:
        buffer = self.made(self.namer.view(node), node)
        self.places[node] = buffer
        self.steps.append(Materialise(node, buffer))

    def made(self, name: str, node: Node) -> Buffer:
        return Buffer(name, node.shape, node.dtype, contiguous(node.shape))


def last_uses(graph: Graph, units: Sequence[Unit]) -> dict[Node, int]:
    """The number of the last unit that reads each value; what is returned or kept is read after all of them."""
    last: dict[Node, int] = {}
    for number, unit in enumerate(units):
        for x in unit.operands:
            last[base_of(x)] = number
    for node in ends_of(graph):
        last[base_of(node)] = len(units)
    return last

