"""Units in their order come in; steps, with a buffer for every value, go out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernelwright.ir.nodes import (
    Const,
    Contract,
    Conv,
    Gather,
    Graph,
    Input,
    Iota,
    Item,
    Map,
    Node,
    Opaque,
    Pad,
    Param,
    Permute,
    Reshape,
    Shape,
    Table,
    Update,
    View,
)
from kernelwright.plan.convolutions import Convolution
from kernelwright.plan.fuse import ends_of, is_computed, users_of
from kernelwright.plan.joins import joins_of
from kernelwright.plan.layouts import base_of, guarded_layout, layout_of, loaded, made_of, views_between, views_of
from kernelwright.plan.memory import FRESH, memory_of
from kernelwright.plan.names import Namer
from kernelwright.plan.products import Matrix, Product, extent_of, form_of, matrix_of
from kernelwright.plan.routes import Routes
from kernelwright.plan.rows import row_shape
from kernelwright.plan.steps import (
    Buffer,
    CopyBack,
    Kernel,
    Layout,
    Library,
    Materialise,
    Origin,
    Plan,
    Region,
    Step,
    channels_last,
    contiguous,
)
from kernelwright.plan.tiles import window_sizes
from kernelwright.plan.units import Prologue, Unit
from kernelwright.simplify.ownership import is_backwards
from kernelwright.simplify.views import squeezed

BATCH_NORM = "aten._native_batch_norm_legit_functional.default"

# Operators whose result is laid out as their first operand is.
KEEPS_LAYOUT = frozenset(
    f"aten.{name}.default"
    for name in [
        "_native_batch_norm_legit_functional",
        "max_pool2d",
        "avg_pool2d",
        "adaptive_avg_pool2d",
        "native_dropout",
    ]
)


class Placement:
    """Gives every value its buffer while it turns units into steps, one after the other."""

    def __init__(self, graph: Graph, units: Sequence[Unit], routes: Routes, origins: Mapping[Node, Node]) -> None:
        self.graph = graph
        self.units = units
        self.in_channels_last = routes.in_channels_last
        self.precision = routes.precision
        self.strict_weights = routes.strict_weights
        exact = routes.precision == "reference" and not routes.tf32_convolutions
        self.conv_precision = "ieee" if exact else routes.precision
        self.origins = origins
        self.namer = Namer(graph)
        self.places: dict[Node, Buffer] = {}
        self.steps: list[Step] = []
        self.fresh: set[str] = set()
        self.done_updates: set[Update] = set()
        self.users = users_of(graph)
        self.ends = ends_of(graph)
        self.joins = joins_of(graph, self.users)
        self.makers = makers_of(units)
        self.memory = memory_of(graph)
        self.last_use = last_uses(graph, units, self.memory)
        targets = [update.target for update in graph.updates]  # one may be written without ever being read
        for node in dict.fromkeys((*graph.nodes(), *targets)):
            if isinstance(node, (Input, Param)):
                self.places[node] = Buffer(self.namer.leaf(node), node.shape, node.dtype, node.strides, node)
            elif isinstance(node, Iota):
                self.places[node] = Buffer(self.namer.unique("iota"), node.shape, node.dtype, (1,), node)
            elif isinstance(node, Table):
                self.materialise(node)

    def placed(self) -> Plan:
        for number, unit in enumerate(self.units):
            if unit.library is not None:
                self.add_library(unit)
            elif unit.axes:
                self.add_rows(number, unit)
            else:
                self.add_kernel(number, unit)
        for update in self.graph.updates:
            if update not in self.done_updates:
                self.steps.append(CopyBack(self.places[update.target], update.value))
        return Plan(self.graph, tuple(self.steps), dict(self.places))

    def add_library(self, unit: Unit) -> None:
        node = unit.library
        assert node is not None
        if any(slot.whole is node for slot in self.joins.values()):
            return  # its parts have been written where they belong
        result = unit.biased or node
        if not isinstance(node, Opaque) or len(node.results) == 1:
            self.places[result] = self.made_by_library(node, result)
            self.note_fresh(node, result)
            turned = node in self.in_channels_last
            self.steps.append(Library(node, unit.bias, (self.places[result],), in_channels_last=turned))
            return
        items = {n.index: n for n in self.users[node] if isinstance(n, Item)}
        in_place = self.updates_statistics(node, items)
        buffers: list[Buffer | None] = []
        for index in range(len(node.results)):
            item = items.get(index)
            if item is None or (in_place and index != 0):
                buffers.append(None)
                continue
            self.places[item] = self.made_by_library(node, item)
            self.note_fresh(node, item)
            buffers.append(self.places[item])
        self.steps.append(Library(node, None, tuple(buffers), in_place))

    def made_by_library(self, node: Node, result: Node) -> Buffer:
        """In channels-last order if the call runs so, or keeps the order of an operand that is."""
        turned = node in self.in_channels_last
        if isinstance(node, Opaque) and node.target in KEEPS_LAYOUT and len(result.shape) == 4:
            first = self.places.get(node.operands[0])
            turned = first is not None and first.strides == channels_last(first.shape) != contiguous(first.shape)
        strides = channels_last(result.shape) if turned else contiguous(result.shape)
        return Buffer(self.namer.library(node), result.shape, result.dtype, strides)

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
        private = private and not any({u.target, u.value} & set(self.graph.outputs) for u in wanted)
        if len(wanted) != 2 or not private or not all(u in self.graph.updates for u in wanted):
            return False
        self.done_updates.update(wanted)
        return True

    def add_kernel(self, number: int, unit: Unit) -> None:
        last = unit.maps[-1] if unit.maps else unit.core
        assert last is not None
        shape = last.shape
        core = None if unit.core is None else self.core(unit.core, unit.prologues)
        inside = {*unit.maps, unit.core}
        sources = self.sources(unit)
        loads: dict[Node, Layout] = {}
        for node in unit.maps:
            for x in loaded(node):
                if x not in inside and x not in loads and not isinstance(base_of(x), Const):
                    loads[x] = self.load(x, shape, guarded=core is None)
        reads = {**loads, **sources}
        stored = [n for n in unit.nodes if self.is_stored(n)]
        writes_over: dict[str, str] = {}
        stores: list[tuple[Node, Layout]] = []
        for result in stored:
            if result in self.joins:
                stores.append((result, self.joined(result)))
                continue
            buffer = self.store_buffer(number, unit, result, reads, writes_over)
            self.places[result] = buffer
            stores.append((result, Layout(buffer, shape, buffer.strides, 0)))
        picked = picked_from(unit, sources)
        region = Region(shape, tuple(loads.items()), unit.maps, tuple(stores), unit.core, sources=picked)
        self.steps.append(Kernel(self.namer.kernel(unit.maps, unit.core), region, writes_over, core))

    def add_rows(self, number: int, unit: Unit) -> None:
        """A kernel that reduces, maybe what its core makes. Results are new memory: while one row is written, others
        may still be read. Only state that a row's own new value is made of lies where it was."""
        core = None if unit.core is None else self.core(unit.core, unit.prologues)
        inside = {*unit.maps, unit.core}
        row = row_shape(unit.shape, unit.axes)
        sources = self.sources(unit)
        loads: dict[Node, Layout] = {}
        for node in unit.maps:
            for x in loaded(node):
                if x in loads or base_of(x) in inside or isinstance(base_of(x), Const):
                    continue
                if unit.window is not None and node.shape == unit.window.x.shape:
                    loads[x] = self.load(replace(unit.window, x=x) if x.shape else x, unit.shape)
                else:
                    loads[x] = along_rows(self.load(x, x.shape, guarded=core is None), unit.shape, row)
        stores: list[tuple[Node, Layout]] = []
        for result in unit.nodes:
            if not self.is_stored(result):
                continue
            if result in self.joins:
                own = self.joined(result)
            elif (update := self.row_update(number, unit, result, loads, row)) is not None:
                self.done_updates.add(update)
                self.places[result] = self.places[update.target]
                own = Layout(self.places[update.target], result.shape, contiguous(result.shape), 0)
            else:
                buffer = self.result_buffer(result, loads)
                self.places[result] = buffer
                own = Layout(buffer, result.shape, buffer.strides, 0)
            if result is unit.core and result.shape != unit.shape:  # its axes are grouped otherwise in the region
                assert own.strides == contiguous(result.shape), "nothing else of that shape is loaded"
                stores.append((result, Layout(own.buffer, unit.shape, contiguous(unit.shape), own.offset)))
            else:
                stores.append((result, along_rows(own, row if result.shape != unit.shape else unit.shape, row)))
        picked = picked_from(unit, sources)
        window = () if unit.window is None else window_sizes(unit.window)
        region = Region(
            unit.shape, tuple(loads.items()), unit.maps, tuple(stores), unit.core, unit.axes, window, picked
        )
        self.steps.append(Kernel(self.namer.kernel(unit.maps, unit.core), region, {}, core))

    def row_update(
        self, number: int, unit: Unit, result: Node, loads: Mapping[Node, Layout], row: Shape
    ) -> Update | None:
        """The state that this value of each row replaces, if it can be written where the old one is read.

        Such as running statistics: whoever reads a row's old value after the new one is written makes nothing of it.
        """
        update = next((u for u in self.graph.updates if base_of(u.value) is result), None)
        if update is None or unit.core is not None or result.shape == unit.shape:
            return None
        target, place = update.target, self.places[update.target]
        reshaped = all(isinstance(view, Reshape) for view in views_between(update.value, result))
        fits = reshaped and (place.dtype, place.strides) == (result.dtype, contiguous(place.shape))
        read = {x: layout for x, layout in loads.items() if target in self.memory[x]}
        own = along_rows(Layout(place, result.shape, contiguous(result.shape), 0), row, row)
        same = all((at.buffer, at.strides, at.offset, at.guards) == (place, own.strides, 0, ()) for at in read.values())
        later = self.last_use.get(target, -1) > number or any(target in self.memory[n] for n in self.ends)
        alone = self.readers_but(update) == 0 and all(self.serves_only(x, result, unit) for x in read)
        return update if fits and same and alone and not later else None

    def readers_but(self, update: Update) -> int:
        """How many read a value that becomes state, besides."""
        base = base_of(update.value)
        chain = [*views_between(update.value, base), base]
        others = sum(u.value in chain for u in self.graph.updates) - 1
        others += sum(node in self.graph.outputs for node in chain)
        return others + sum(len(self.users[node]) for node in chain) - (len(chain) - 1)

    def serves_only(self, x: Node, result: Node, unit: Unit) -> bool:
        """Whether nothing but the result is made of it, in this kernel, by Maps alone."""
        made = made_of(x, unit.maps)
        users = [user for node in {x, *made} - {result} for user in self.users[node] if not isinstance(user, View)]
        maps = all(isinstance(node, Map) for node in made)
        stored = any(self.is_stored(node) for node in made - {result})
        return result in made and maps and not stored and all(user in made for user in users)

    def sources(self, unit: Unit) -> dict[Node, Layout]:
        """Where what the unit's Gathers pick from lies."""
        return {n.x: self.load(n.x, n.x.shape, guarded=True) for n in unit.maps if isinstance(n, Gather)}

    def core(self, node: Contract | Conv, prologues: Sequence[Prologue]) -> Product | Convolution:
        return self.product(node, prologues) if isinstance(node, Contract) else self.convolution(node)

    def convolution(self, node: Conv) -> Convolution:
        """The convolution with its operands where they lie, in whatever order; what strides cannot say is copied."""
        return Convolution(
            node,
            x=self.load(node.x, node.x.shape),
            weight=self.load(node.weight, node.weight.shape),
            constant=self.is_constant(node.weight),
            precision=self.conv_precision,
            routed=self.origins[node],
        )

    def product(self, node: Contract, prologues: Sequence[Prologue]) -> Product:
        """The product with its operands, or what they are computed of, where they lie; one that strides cannot describe
        is copied first."""
        form = form_of(node)
        assert form is not None, "routes name only products that have a form"
        made: dict[Node, Prologue] = {prologue.result: prologue for prologue in prologues}
        a, w = (made[x].given if x in made else x for x in (form.a, form.w))
        w_matrix = self.matrix(w, form.w_labels, form.batch, form.columns, form.summed)
        return Product(
            node,
            batches=extent_of(node, form.batch),
            m=extent_of(node, form.rows),
            n=extent_of(node, form.columns),
            k=extent_of(node, form.summed),
            a=self.matrix(a, form.a_labels, form.batch, form.rows, form.summed),
            w=w_matrix,
            constant=form.w not in made and self.is_constant(w_matrix.layout.buffer.source),
            precision=self.precision,
            routed=self.origins[node],
            of_a=self.prologue(made.get(form.a), form.a_labels, form.batch + form.rows + form.summed),
            of_w=self.prologue(made.get(form.w), form.w_labels, form.batch + form.columns + form.summed),
        )

    def prologue(self, made: Prologue | None, labels: str, wanted: str) -> Region | None:
        """What is computed of an operand, its axes in the order of batches, rows and k."""
        if made is None:
            return None
        order = [labels.index(label) for label in wanted if label in labels]
        loads: dict[Node, Layout] = {}
        for node in made.maps:
            for x in node.args:
                known = x in made.maps or x is made.given or x in loads or isinstance(base_of(x), Const)
                if not known:
                    layout = self.load(x, made.result.shape)
                    shape, strides = (tuple(v[i] for i in order) for v in (layout.shape, layout.strides))
                    loads[x] = replace(layout, shape=shape, strides=strides)
        shape = tuple(made.result.shape[i] for i in order)
        return Region(shape, tuple(loads.items()), made.maps, (), made.given)

    def is_constant(self, weight: Node | None) -> bool:
        """Whether it may be packed ahead: a parameter, and no copy of one, that no step of ours writes."""
        written = any(update.target is weight for update in self.graph.updates)
        return isinstance(weight, Param) and not written and not self.strict_weights

    def matrix(self, x: Node, labels: str, batch: str, rows: str, summed: str) -> Matrix:
        """The operand where it lies, or a copy of it in the order of batches, rows and k."""
        layout = layout_of(x, self.places)
        matrix = None if layout is None else matrix_of(layout, labels, batch, rows, summed)
        if matrix is None:
            wanted = batch + rows + summed
            # What is in memory in another order, channels-last say, keeps its place there.
            as_it_is = wanted == labels and x not in self.places
            turned = x if as_it_is else Permute(x, tuple(labels.index(label) for label in wanted))
            if turned not in self.places:
                self.materialise(turned)
            matrix = matrix_of(self.load(turned, turned.shape), wanted, batch, rows, summed)
        assert matrix is not None, "a contiguous operand in that order always is a matrix"
        return matrix

    def load(self, x: Node, shape: tuple[int, ...], guarded: bool = False) -> Layout:
        """Where a kernel reads x. What strides cannot express is copied first; so are borders and what is read from its
        end, unless the kernel minds them."""
        if isinstance(base_of(x), Const) and x not in self.places:
            self.materialise(x)  # a product's operand is in memory, even one made of a number
        while isinstance(layout := guarded_layout(x, self.places), View) or not (layout.is_plain or guarded):
            self.materialise(layout if isinstance(layout, View) else self.outermost_special(x))
        if not layout.shape:
            return Layout(layout.buffer, shape, (0,) * len(shape), layout.offset)
        return layout

    def outermost_special(self, x: Node) -> Node:
        """With this in memory, x is plain. What is seen of it may be repeated many times over."""
        chain, _ = views_of(x, self.places)
        return next(view for view in reversed(chain) if isinstance(view, Pad) or is_backwards(view))

    def is_stored(self, node: Node) -> bool:
        """Somebody needs it who does not compute it as well: the caller, PyTorch, or another kernel."""
        readers = self.readers(node)
        if readers is None:
            return True
        users = [self.makers[u] if is_computed(u) else frozenset() for u in readers]
        return any(not units or units - self.makers[node] for units in users)

    def readers(self, node: Node) -> list[Node] | None:
        """Who uses a value, directly or through views; None if the caller does."""
        if node in self.ends:
            return None
        found: list[Node] = []
        for user in self.users[node]:
            more = self.readers(user) if isinstance(user, View) else [user]
            if more is None:
                return None
            found += more
        return found

    def store_buffer(
        self, number: int, unit: Unit, node: Node, loads: Mapping[Node, Layout], writes_over: dict[str, str]
    ) -> Buffer:
        """State in its own place, else the memory of an operand that dies here, else new memory."""
        before = [x for prologue in unit.prologues for n in prologue.maps for x in n.operands]
        core_reads = (
            {x for operand in (*unit.core.operands, *before) for x in self.memory[operand]} if unit.core else set()
        )
        for update in self.graph.updates:
            if update.target in core_reads:
                continue  # other blocks may still need what one writes
            if update.value is node and self.may_write_state(number, node, update, loads):
                self.done_updates.add(update)
                return self.places[update.target]
        buffer = self.result_buffer(node, loads)
        over = None if unit.core is not None else self.dying(number, buffer, loads, set(writes_over.values()))
        if over is not None:
            writes_over[buffer.name] = over
        return buffer

    def result_buffer(self, node: Node, loads: Mapping[Node, Layout]) -> Buffer:
        """New memory for a result of a kernel of ours."""
        buffer = Buffer(self.namer.kernel_result(node), node.shape, node.dtype, self.result_strides(node, loads))
        self.fresh.add(buffer.name)
        return buffer

    def joined(self, part: Node) -> Layout:
        """The part's slice of the concatenation, whose buffer the first part makes."""
        slot = self.joins[part]
        if slot.whole not in self.places:
            self.places[slot.whole] = self.made(self.namer.joined(slot.whole), slot.whole)
            self.fresh.add(self.places[slot.whole].name)
        buffer = self.places[slot.whole]
        return Layout(buffer, part.shape, slot.strides, slot.offset)

    def result_strides(self, node: Node, loads: Mapping[Node, Layout]) -> Shape:
        """The order of the operands, if they agree on one; what is returned is contiguous, as PyTorch would have it."""
        whole = [layout.strides for layout in loads.values() if self.is_whole(layout) and layout.shape == node.shape]
        returned = any(base_of(end) is node for end in self.ends)
        agree = len(set(whole)) == 1 and whole[0] == channels_last(node.shape)
        return whole[0] if agree and not returned else contiguous(node.shape)

    def may_write_state(self, number: int, node: Node, update: Update, loads: Mapping[Node, Layout]) -> bool:
        """Nothing reads the old state later, this kernel reads it element by element, and the value is not returned."""
        target = self.places[update.target]
        only_use = self.users[node] == [] and node not in self.graph.outputs
        ends = [u for u in self.graph.updates if u.value is node]
        elementwise = self.is_read_elementwise(update.target, target, loads)
        last = self.last_use.get(update.target, -1) <= number
        read_at_end = any(update.target in self.memory[n] for n in self.ends)
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
            same = (old.shape, old.strides, old.dtype) == (buffer.shape, buffer.strides, buffer.dtype)
            if (
                same
                and old.name not in taken
                and old.name in self.fresh
                and self.last_use[base_of(x)] == number
                and self.is_read_elementwise(base_of(x), old, loads)
            ):
                return old.name
        return None

    def is_read_elementwise(self, holder: Node, buffer: Buffer, loads: Mapping[Node, Layout]) -> bool:
        """Whatever is loaded of a value's memory is the value itself, whole; not a view that an operator gave of it."""
        touching = [layout for x, layout in loads.items() if holder in self.memory[x]]
        return all(layout.buffer == buffer and self.is_whole(layout) for layout in touching)

    @staticmethod
    def is_whole(layout: Layout) -> bool:
        """Element i of the kernel is element i of the buffer."""
        in_place = layout.shape == layout.buffer.shape and layout.strides == layout.buffer.strides
        return in_place and not layout.offset and not layout.guards

    def materialise(self, node: Node) -> None:
        buffer = self.made(self.namer.view(node), node)
        self.places[node] = buffer
        self.steps.append(Materialise(node, buffer))

    def made(self, name: str, node: Node) -> Buffer:
        return Buffer(name, node.shape, node.dtype, contiguous(node.shape))


def picked_from(unit: Unit, sources: Mapping[Node, Layout]) -> tuple[tuple[Gather, Origin], ...]:
    """The source of each Gather: the part of its layout that follows the result, and the strides of what is picked."""
    found = []
    for node in unit.maps:
        if isinstance(node, Gather):
            layout, rank = sources[node.x], len(node.shape)
            guards = tuple(replace(guard, strides=guard.strides[:rank]) for guard in layout.guards)
            seen = Layout(layout.buffer, node.shape, layout.strides[:rank], layout.offset, guards, layout.fill)
            guarded = tuple(guard.strides[rank:] for guard in layout.guards)
            found.append((node, Origin(seen, layout.strides[rank:], guarded)))
    return tuple(found)


def along_rows(layout: Layout, shape: Shape, row: Shape) -> Layout:
    """The layout seen in a region of this shape: one value a row, in whatever shape, is repeated along it."""
    if layout.shape == shape and shape != row:
        return layout

    def spread(strides: Shape) -> Shape:
        own = iter([stride for extent, stride in zip(layout.shape, strides, strict=True) if extent != 1])
        return tuple(next(own) if extent != 1 else 0 for extent in row) if squeezed(layout.shape) else (0,) * len(row)

    guards = tuple(replace(guard, strides=spread(guard.strides)) for guard in layout.guards)
    return replace(layout, shape=shape, strides=spread(layout.strides), guards=guards)


def last_uses(graph: Graph, units: Sequence[Unit], memory: Mapping[Node, frozenset[Node]]) -> dict[Node, int]:
    """The number of the last unit that reads the memory of each value; what is returned or kept is read at the end."""
    last: dict[Node, int] = {}
    for number, unit in enumerate(units):
        last |= {holder: number for x in unit.operands for holder in memory[x]}
    return last | {holder: len(units) for node in ends_of(graph) for holder in memory[node]}


def makers_of(units: Sequence[Unit]) -> dict[Node, frozenset[int]]:
    """The numbers of the units that compute each node: several for a value that each of its users computes."""
    made: dict[Node, frozenset[int]] = defaultdict(frozenset)
    for number, unit in enumerate(units):
        for node in unit.nodes:
            made[node] |= {number}
    return made
