"""Random graphs through plan, generate and emit: everything computed once, in order, and to the interpreter's bits."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace

import torch
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

from kernelwright.build import build_cpu_library, load_cpu_library
from kernelwright.device import resolve
from kernelwright.emit.forward import forward_lines, state_of
from kernelwright.generate import Program, generate
from kernelwright.generate.generate import program_text
from kernelwright.ir.interpret import interpret
from kernelwright.ir.nodes import (
    Const,
    Contract,
    Conv,
    Gather,
    Graph,
    Input,
    Item,
    Map,
    Node,
    Opaque,
    Param,
    View,
    walk,
)
from kernelwright.ir.text import graph_text
from kernelwright.kernels.pointwise import CpuConfig
from kernelwright.plan import (
    Buffer,
    CopyBack,
    Kernel,
    Layout,
    Library,
    Materialise,
    Plan,
    Routes,
    plan,
    prepared,
)
from kernelwright.plan.layouts import base_of
from kernelwright.plan.products import form_of
from kernelwright.simplify import simplify
from kernelwright.simplify.concatenations import CAT
from tests.property.edge_values import difference
from tests.property.random_graphs import GIVES_A_VIEW, Case, all_nodes, graphs, is_approximate, operands_for

PLANS = 1000
BATCHES = 25
GRAPHS_A_BATCH = 12

# Functions that are not correctly rounded, and sums in another order.
LOOSE_ULPS = 1024

# Lanes that fit nowhere and everywhere, and grains that cut rows.
CONFIGS = (CpuConfig(32, 16384), CpuConfig(32, 16384), CpuConfig(16, 4096), CpuConfig(8, 64), CpuConfig(1, 100))


def test_every_plan_computes_each_value_once_in_an_order_that_can_run(cases: float) -> None:
    @settings(max_examples=int(PLANS * cases))
    @given(graphs(most_steps=24, wild=True))
    def holds(case: Case) -> None:
        for each in (case.graph, simplify(case.graph)):
            note(graph_text(each))
            check_plan(plan(each))
            own = frozenset(n for n in prepared(each).nodes() if isinstance(n, Contract) and form_of(n) is not None)
            if own:
                check_plan(plan(each, Routes(own)))

    holds()


def test_fused_kernels_give_what_the_interpreter_gives(cases: float) -> None:
    # A failing batch names its graph; to shrink it would compile for minutes.
    @settings(max_examples=int(BATCHES * cases), phases=[Phase.generate])
    @given(st.lists(st.tuples(graphs(), st.sampled_from(CONFIGS), st.booleans()), min_size=1, max_size=GRAPHS_A_BATCH))
    def holds(batch: list[tuple[Case, CpuConfig, bool]]) -> None:
        runs = [
            Run.of(number, simplify(case.graph) if simplified else case.graph, config)
            for number, (case, config, simplified) in enumerate(batch)
        ]
        library = built(runs)
        for run in runs:
            run.check(library)

    holds()


# --- the structure of a plan


def check_plan(made: Plan) -> None:
    check_coverage(made)
    check_names(made)
    memory = Memory(made)
    for step in made.steps:
        memory.run(step)
    memory.end()


def check_coverage(made: Plan) -> None:
    """Each Map in some kernel, or added by a library call as its bias; everything else that computes in one call."""
    nodes = made.graph.nodes()
    computed = [n for kernel in made.kernels for n in kernel.region.body]
    called = [step.node for step in made.steps if isinstance(step, Library)]
    called += [kernel.core.node for kernel in made.kernels if kernel.core is not None]
    biased = sum(step.bias is not None for step in made.steps if isinstance(step, Library))
    missing = {n for n in nodes if isinstance(n, (Map, Gather))} - set(computed)
    assert len(missing) == biased, f"{len(missing)} Maps in no kernel, {biased} biases in library calls"
    # A concatenation needs no call where kernels write its parts into their slices.
    written = [n for n in nodes if isinstance(n, Opaque) and n.target == CAT and n not in called]
    assert sorted(map(id, called + written)) == sorted(id(n) for n in nodes if isinstance(n, (Contract, Conv, Opaque)))
    drawn = [n.serial for n in called if isinstance(n, Opaque) and n.is_random]
    assert drawn == sorted(drawn), "random draws changed places"
    for kernel in made.kernels:
        check_body(kernel)


def check_body(kernel: Kernel) -> None:
    """In SSA order, over operands that are loaded or constant; every load used."""
    loaded = {node for node, _ in kernel.region.loads}
    known: set[Node] = set() if kernel.region.given is None else {kernel.region.given}
    for node in kernel.region.body:
        assert node.shape in ((), kernel.region.shape)
        for x in node.indices if isinstance(node, Gather) else node.operands:
            assert x in known or x in loaded or isinstance(base_of(x), Const), f"{kernel.name} uses what it has not"
        known.add(node)
    assert loaded <= {x for node in kernel.region.body for x in node.operands}, "a load that nothing uses"
    assert [g for g, _ in kernel.region.sources] == [n for n in kernel.region.body if isinstance(n, Gather)]
    assert {node for node, _ in kernel.region.stores} <= known
    assert kernel.region.stores, "a kernel without a result"


def check_names(made: Plan) -> None:
    names = [buffer.name for buffer in made.places.values()]
    buffers = {buffer.name: buffer for buffer in made.places.values()}
    assert all(buffers[b.name] == b for b in made.places.values()), f"two buffers of one name among {names}"
    kernels = [kernel.name for kernel in made.kernels]
    assert len(set(kernels)) == len(kernels)


class Memory:
    """Runs a plan without values: which value each piece of memory holds, and which may still be read."""

    def __init__(self, made: Plan) -> None:
        self.plan = made
        self.holders: dict[str, set[str]] = {}  # buffer -> the pieces of memory its elements may lie in
        self.dead: set[str] = set()  # pieces that now hold another value, by the buffer that they belonged to
        self.updated: set[str] = set()
        self.slices: dict[str, list[tuple[int, int]]] = {}  # of concatenations: where each part starts, and its size
        for buffer in made.places.values():
            if buffer.source is not None:
                self.holders[buffer.name] = {buffer.name}

    def read(self, buffer: Buffer, why: str) -> None:
        assert buffer.name in self.holders, f"{why} reads {buffer.name} before it is made"
        stale = self.holders[buffer.name] & self.dead
        assert not stale, f"{why} reads {buffer.name}, whose memory {stale} has been written over"

    def read_node(self, node: Node, why: str) -> None:
        buffer = self.buffer_of(node)
        if buffer is not None:
            self.read(buffer, why)

    def buffer_of(self, node: Node) -> Buffer | None:
        """Where a value is read from now: a view may be copied into memory of its own later on."""
        places = self.plan.places
        while isinstance(node, View) and not (node in places and places[node].name in self.holders):
            node = node.x
        if node in places:
            return places[node]
        assert isinstance(node, Const), f"{type(node).__name__} is nowhere in memory"
        return None

    def make(self, buffer: Buffer, lies_in: set[str]) -> None:
        assert buffer.name not in self.holders, f"{buffer.name} is made twice"
        self.holders[buffer.name] = lies_in

    def run(self, step: Kernel | Library | Materialise | CopyBack) -> None:
        match step:
            case Kernel():
                self.run_kernel(step)
            case Library(node, bias, results):
                for x in (*node.operands, *([] if bias is None else [bias])):
                    self.read_node(x, type(node).__name__)
                self.run_library(node, results, step.in_place)
            case Materialise(node, result):
                if isinstance(node, View):
                    self.read_node(node.x, "a copy")
                self.make(result, {result.name})
            case CopyBack(target, value):
                self.read_node(value, "an update")
                self.updated.add(target.name)
                self.dead.add(target.name)

    def run_kernel(self, kernel: Kernel) -> None:
        loads = [layout for _, layout in kernel.region.loads]
        if kernel.core is not None:
            loads += [kernel.core.a.layout, kernel.core.w.layout]
        for layout in loads:
            self.read(layout.buffer, kernel.name)
            check_bounds(layout)
        for gather, origin in kernel.region.sources:
            seen = origin.layout
            self.read(seen.buffer, kernel.name)
            whole = (*seen.shape, *gather.extents), (*seen.strides, *origin.strides)
            check_bounds(replace(seen, shape=whole[0], strides=whole[1]))
        for _, layout in kernel.region.stores:
            buffer = layout.buffer
            check_bounds(layout)
            assert layout.strides == buffer.strides
            if layout.shape != buffer.shape:
                self.make_slice(layout)
                continue
            assert layout.offset == 0
            over = kernel.writes_over.get(buffer.name)
            if over is not None:
                assert over in self.holders
                for piece in self.holders[over]:
                    self.check_elementwise(kernel, piece)
                self.dead |= self.holders[over]
                self.make(buffer, {buffer.name})
            elif buffer.source is not None:
                self.check_elementwise(kernel, buffer.name)
                self.updated.add(buffer.name)
                self.dead.add(buffer.name)
            else:
                self.make(buffer, {buffer.name})

    def make_slice(self, layout: Layout) -> None:
        """One part of a concatenation, which is whole when the slices are as large as it is."""
        name = layout.buffer.name
        before = self.slices.setdefault(name, [])
        assert all(layout.offset != other for other, _ in before), "two parts in one place"
        before.append((layout.offset, math.prod(layout.shape)))
        if sum(count for _, count in before) == math.prod(layout.buffer.shape):
            self.make(layout.buffer, {name})

    def check_elementwise(self, kernel: Kernel, piece: str) -> None:
        """A kernel that writes memory it also reads must read, for element i, element i alone."""
        for _, origin in kernel.region.sources:
            picked = piece in self.holders[origin.layout.buffer.name]
            assert not picked, f"{kernel.name} writes over {piece} and picks from it"
        for _, layout in kernel.region.loads:
            if piece in self.holders[layout.buffer.name]:
                whole = (layout.shape, layout.strides, layout.offset) == (layout.buffer.shape, layout.buffer.strides, 0)
                assert whole, f"{kernel.name} writes over {piece} and reads its elements elsewhere"

    def run_library(self, node: Node, results: tuple[Buffer | None, ...], in_place: bool) -> None:
        lies_in: set[str] = set()
        if isinstance(node, Opaque) and node.target in GIVES_A_VIEW:
            operands = [self.buffer_of(x) for x in node.operands]
            lies_in = {piece for b in operands if b is not None for piece in self.holders[b.name]}
        for result in results:
            if result is not None:
                self.make(result, {result.name, *lies_in})
        if in_place:
            assert isinstance(node, Opaque)
            for target in node.args[3:5]:
                assert isinstance(target, Param)
                self.updated.add(self.plan.places[target].name)
                self.dead.add(self.plan.places[target].name)

    def end(self) -> None:
        graph = self.plan.graph
        for node in graph.outputs:
            self.read_node(node, "the caller")
        assert self.updated == {self.plan.places[u.target].name for u in graph.updates}, "an update is missing"


def check_bounds(layout: Layout) -> None:
    """Every element that is touched lies in the buffer."""
    if 0 in layout.shape:
        return
    buffer = layout.buffer
    steps = [(n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True)]
    first, last = (layout.offset + sum(step for step in steps if (step > 0) == up) for up in (False, True))
    end = sum((n - 1) * s for n, s in zip(buffer.shape, buffer.strides, strict=True))
    assert 0 <= first <= last <= end, f"{layout} leaves its buffer"


# --- the values


@dataclass(frozen=True)
class Run:
    """One graph of a batch, its kernels named so that they can share a library with others."""

    number: int
    graph: Graph
    program: Program

    @staticmethod
    def of(number: int, graph: Graph, config: CpuConfig) -> Run:
        made = plan(graph)
        steps = tuple(
            replace(step, name=f"g{number}_{step.name}") if isinstance(step, Kernel) else step for step in made.steps
        )
        made = replace(made, steps=steps)
        choices = {kernel.name: config for kernel in made.kernels}
        program = generate(made, choices, resolve("cpu"))
        renamed = tuple(
            replace(step, entry=f"g{number}_{step.entry}") if step in program.launches else step
            for step in program.steps
        )
        return Run(number, graph, replace(program, steps=renamed))

    @property
    def forward_text(self) -> str:
        state = [f"{self.program.plan.places[param].name} = self.{param.path}" for param in state_of(self.program)]
        lines = [*state, *forward_lines(self.program, "torch.device('cpu')")]
        names = ", ".join(["self", *(leaf.name for leaf in self.graph.inputs)])
        return f"def forward({names}):\n" + "\n".join(f"    {line}" for line in lines)

    @property
    def text(self) -> str:
        """What one needs to see of a graph that fails."""
        structs = [source.struct for source in self.program.sources]
        return "\n".join([graph_text(self.graph), self.forward_text, *structs])

    def check(self, library: ctypes.CDLL | None) -> None:
        inputs, state = operands_for(self.graph)
        untouched, untouched_state = operands_for(self.graph)
        torch.manual_seed(7)
        expected = interpret(self.graph, *operands_for(self.graph))
        torch.manual_seed(7)
        outputs = self.forward(library)(SimpleNamespace(**state), *inputs)
        ends = (*self.graph.outputs, *(u.value for u in self.graph.updates))
        got = [*outputs, *(self.tensor_of(u.target, inputs, state) for u in self.graph.updates)]
        for number, (node, one, other) in enumerate(zip(ends, got, expected, strict=True)):
            if self.hangs_on_an_open_zero(node):
                continue
            loose = LOOSE_ULPS if is_approximate(node) else 0
            wrong = difference(one, other, ulps=loose, zeros_have_signs=not self.zeros_are_open(node))
            assert not wrong, f"result {number} of graph {self.number}: {wrong}\n{self.text}"
        self.check_leaves(inputs, untouched, state, untouched_state)
        self.check_outputs_are_apart(outputs)

    def zeros_are_open(self, node: Node) -> bool:
        """PyTorch leaves open which of two zeros of unlike sign minimum and maximum give; sort and amax follow them."""
        open_ = ("minimum", "maximum", "fmin", "fmax", "hardtanh", "relu", "relu6", "threshold")
        return any(
            (isinstance(n, Map) and n.fn in open_) or (isinstance(n, Opaque) and n.target != "aten.rand.default")
            for n in walk((node,))
        )

    def hangs_on_an_open_zero(self, node: Node) -> bool:
        """Whether such a zero may be divided by, or otherwise asked for its sign: 1 / -0 is not 1 / 0."""
        asks = "div floor_divide trunc_divide remainder fmod reciprocal rsqrt pow atan2 signbit".split()
        maps = (n for n in walk((node,)) if isinstance(n, Map) and n.fn in asks)
        return any(self.zeros_are_open(operand) for n in maps for operand in n.operands)

    @staticmethod
    def tensor_of(target: Param | Input, inputs: list[torch.Tensor], state: dict[str, torch.Tensor]) -> torch.Tensor:
        return state[target.path] if isinstance(target, Param) else inputs[target.position]

    def check_leaves(
        self,
        inputs: list[torch.Tensor],
        inputs_before: list[torch.Tensor],
        state: dict[str, torch.Tensor],
        state_before: dict[str, torch.Tensor],
    ) -> None:
        """What is not updated is as it was."""
        updated = {u.target for u in self.graph.updates}
        for node in all_nodes(self.graph):
            if isinstance(node, (Input, Param)) and node not in updated:
                now, before = (self.tensor_of(node, inputs, state), self.tensor_of(node, inputs_before, state_before))
                assert not difference(now, before), f"{node} was written to\n{self.text}"

    def check_outputs_are_apart(self, outputs: tuple[torch.Tensor, ...]) -> None:
        """Two outputs share memory only where they are views of one value."""
        for i, one in enumerate(outputs):
            for j, other in enumerate(outputs[:i]):
                if one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() and one.numel():
                    assert shares(self.graph.outputs[i]) & shares(self.graph.outputs[j]), "two outputs in one memory"

    def forward(self, library: ctypes.CDLL | None) -> Callable[..., tuple[torch.Tensor, ...]]:
        """The emitted forward(), as a function of self and the inputs."""

        def launch(entry: str, *tensors: torch.Tensor) -> None:
            assert getattr(library, entry)(*[ctypes.c_void_p(t.data_ptr()) for t in tensors]) == 0

        scope = {"torch": torch, "F": torch.nn.functional, "launch": launch}
        exec(self.forward_text, scope)
        made = scope["forward"]
        assert callable(made)
        return made


def shares(node: Node) -> set[Node]:
    """The values whose memory this one may lie in."""
    found: set[Node] = set()
    pending = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, View):
            pending.append(current.x)
            continue
        found.add(current)
        if isinstance(current, Item):
            pending.append(current.source)
        if isinstance(current, Opaque) and current.target in GIVES_A_VIEW:
            pending += current.operands
    return found


def built(runs: list[Run]) -> ctypes.CDLL | None:
    """All kernels of a batch in one library; one compilation instead of many."""
    launches = [launch for run in runs for launch in run.program.launches]
    return load_cpu_library(build_cpu_library(program_text(launches, "cpu"))) if launches else None
