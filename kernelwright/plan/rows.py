"""A `Graph` comes in; groups of nodes that reduce or scan rows in one kernel, with what feeds them and follows, go out.

A group has a shape and the axes it works along. It is grown around its Reduces, or its Scans: Maps of that shape which
they read, Maps of the finished rows, and Maps of the whole shape that see those rows repeated. Between two members
nothing lies outside, or the kernel would have to wait for another one that waits for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kernelwright.ir.nodes import Broadcast, Const, Gather, Graph, Map, Node, Reduce, Reshape, Scan, Shape, View
from kernelwright.plan.layouts import base_of
from kernelwright.simplify.views import squeezed

# Operands and results of one kernel, as for Maps: a call with more pointers than this is slow to make.
MOST_POINTERS = 48

# Each walk along a row computes again what the reductions of the walks before it were computed from. In a loop that
# normalises over and over that grows with the square of its length, and so does the time of the compilers.
MOST_AGAIN = 64

Key: TypeAlias = tuple[type[Node], Shape, Shape, bool]


@dataclass(frozen=True, slots=True)
class RowGroup:
    """What one kernel computes, in order, over `shape`, along `axes`. `members` has the views between too."""

    shape: Shape
    axes: Shape
    nodes: tuple[Map | Gather | Reduce | Scan, ...]
    members: frozenset[Node]


def row_shape(shape: Shape, axes: Shape) -> Shape:
    """The shape of the finished rows."""
    return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))


def row_groups(graph: Graph, kept_apart: frozenset[Node] = frozenset()) -> tuple[RowGroup, ...]:
    """Every Reduce and every Scan in one group. Nodes in `kept_apart` are left to others: the epilogues of products."""
    order = Order(graph)
    groups = []
    for seed in graph.nodes():
        if isinstance(seed, (Reduce, Scan)) and seed not in order.group_of:
            grower = Grower(order, seed, kept_apart)
            grower.grow()
            groups.append(order.close(grower))
    return tuple(groups)


class Order:
    """Who depends on whom, as bits: of each node, all it is computed from; a finished group counts as one node."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = graph.nodes()
        self.number = {node: i for i, node in enumerate(self.nodes)}
        self.ends = {*graph.outputs, *(update.value for update in graph.updates)}
        self.users: dict[Node, list[Node]] = defaultdict(list)
        self.seeds: dict[Key, list[Reduce | Scan]] = defaultdict(list)
        for node in self.nodes:
            if isinstance(node, (Reduce, Scan)):
                self.seeds[key_of(node)].append(node)
            for operand in node.operands:
                self.users[operand].append(node)
        # What no group can hold: whatever is not computed element by element or along rows.
        self.walls = self.bits(n for n in self.nodes if not isinstance(n, (Map, Gather, Reduce, Scan, View)))
        self.group_of: dict[Node, frozenset[Node]] = {}
        self.above: dict[Node, int] = {}
        self.below: dict[Node, int] = {}
        self.closure()

    def bits(self, nodes: Iterable[Node]) -> int:
        result = 0
        for node in nodes:
            result |= 1 << self.number[node]
        return result

    def closure(self) -> None:
        """`above`: what a node needs; `below`: what needs it. Both through groups as if they were single nodes."""
        pieces = list(contracted(self.nodes, self.group_of))
        for piece in pieces:
            needed = 0
            for node in piece:
                for x in node.operands:
                    if x not in piece:
                        needed |= self.above[x] | 1 << self.number[x]
            own = self.bits(piece) if len(piece) > 1 else 0
            for node in piece:
                self.above[node] = needed | own
        for piece in reversed(pieces):
            needing = 0
            for node in piece:
                for user in self.users[node]:
                    if user not in piece:
                        needing |= self.below[user] | 1 << self.number[user]
            own = self.bits(piece) if len(piece) > 1 else 0
            for node in piece:
                self.below[node] = needing | own

    def close(self, grower: Grower) -> RowGroup:
        members = frozenset(grower.members)
        for node in members:
            self.group_of[node] = members
        self.closure()
        nodes = sorted((n for n in members if isinstance(n, (Map, Gather, Reduce, Scan))), key=self.number.__getitem__)
        return RowGroup(grower.shape, grower.axes, tuple(nodes), members)


def contracted(nodes: Sequence[Node], group_of: Mapping[Node, frozenset[Node]]) -> Iterator[frozenset[Node]]:
    """Single nodes and whole groups, each after what it needs."""
    done: set[Node] = set()
    for start in nodes:
        stack = [start]
        while stack:
            node = stack[-1]
            piece = group_of.get(node) or frozenset((node,))
            missing = [x for member in piece for x in member.operands if x not in done and x not in piece]
            if node in done:
                stack.pop()
            elif missing:
                stack.extend(missing)
            else:
                stack.pop()
                done |= piece
                yield piece


class Grower:
    """One group while it grows: its members, and the views between them."""

    def __init__(self, order: Order, seed: Reduce | Scan, kept_apart: frozenset[Node]) -> None:
        self.order = order
        self.kept_apart = kept_apart
        self.key = key_of(seed)
        _, self.shape, self.axes, _ = self.key
        self.row = row_shape(self.shape, self.axes)
        self.members: dict[Node, None] = {seed: None}
        self.bits = order.bits((seed,))
        self.above, self.below = order.above[seed], order.below[seed]

    def grow(self) -> None:
        """Producers first, then what follows, with the further seeds that can join; as long as anything does."""
        while self.add_producers() or self.add_seeds() or self.add_consumers():
            pass

    def add_producers(self) -> bool:
        """Maps that members read, if nothing else does; others too, where the group can store them for those."""
        for member in list(self.members):
            for x in member.operands:
                chain = [x]
                while isinstance(chain[-1], View) and self.is_glue(chain[-1]):
                    chain.append(chain[-1].x)
                if self.is_member_kind(chain[-1]) and chain[-1] not in self.kept_apart and self.add(set(chain)):
                    return True
        return False

    def add_seeds(self) -> bool:
        """A Reduce or Scan of the same rows: of what members computed, or of the same operands."""
        for seed in self.order.seeds[self.key]:
            if seed in self.members or seed in self.order.group_of:
                continue
            if self.depends_on_members(seed) or self.shares_a_read(seed):
                between = self.between(seed)
                if between is not None and self.add({seed, *between}):
                    return True
        return False

    def add_consumers(self) -> bool:
        """What uses a value of a member, on rows or on the whole shape."""
        for member in list(self.members):
            for user in self.order.users[member]:
                if user in self.members:
                    continue
                if isinstance(user, View) and self.is_glue(user) and self.add({user}):
                    return True
                if isinstance(user, Map) and self.is_member_kind(user) and self.add({user}):
                    return True
        return False

    def depends_on_members(self, node: Node) -> bool:
        return bool(self.order.above[node] & self.bits)

    def shares_a_read(self, seed: Reduce | Scan) -> bool:
        """Both read the same large value from memory, maybe after some Maps."""
        mine = {leaf for member in self.members if is_seed(member) for leaf in self.leaves(member)}
        return bool(mine & self.leaves(seed))

    def leaves(self, node: Node) -> set[Node]:
        """The values of the whole shape that a member reads from memory, through Maps of that shape."""
        found: set[Node] = set()
        stack, seen = list(node.operands), set[Node]()
        while stack:
            x = stack.pop()
            if x in seen or x.shape != self.shape:
                continue
            seen.add(x)
            if isinstance(x, Map):
                stack.extend(x.args)
            elif base_of(x).size == x.size and not isinstance(base_of(x), Const):
                found.add(base_of(x))
        return found

    def between(self, seed: Reduce | Scan) -> list[Node] | None:
        """What lies on the ways from members to the seed; None if some of it cannot be a member."""
        bits = self.below & self.order.above[seed] & ~self.bits
        if bits & self.order.walls:
            return None
        nodes = [self.order.nodes[i] for i in set_bits(bits)]
        fits = all(
            self.is_member_kind(n) or (isinstance(n, (Reduce, Scan)) and key_of(n) == self.key)
            if not isinstance(n, View)
            else self.is_glue(n)
            for n in nodes
        )
        return nodes if fits else None

    def is_member_kind(self, node: Node) -> bool:
        """A Map over the whole shape or over rows, in no other group. A number of its own is no row."""
        if isinstance(node, Gather) and node not in self.order.group_of:
            return node.shape == self.shape and self.key[0] is Reduce
        if not isinstance(node, Map) or node in self.order.group_of:
            return False
        if node.shape == self.shape:
            return True
        return squeezed(node.shape) == squeezed(self.row) and (bool(node.shape) or self.depends_on_members(node))

    def is_glue(self, view: View) -> bool:
        """It brings a row's value into another shape of rows, or repeats it along the row."""
        if view in self.order.group_of:
            return False
        match view:
            case Reshape(x, shape):
                return squeezed(x.shape) == squeezed(shape) == squeezed(self.row)
            case Broadcast(x, shape):
                lead = (1,) * (len(shape) - len(x.shape))
                return shape == self.shape and (*lead, *x.shape) == self.row
        return False

    def add(self, nodes: set[Node]) -> bool:
        """The nodes become members if the group stays in one piece and within reach of one kernel."""
        fresh = [n for n in nodes if n not in self.members]
        if not fresh or any(n in self.order.group_of for n in fresh):
            return False
        bits = self.bits | self.order.bits(fresh)
        above, below = self.above, self.below
        for node in fresh:
            above |= self.order.above[node]
            below |= self.order.below[node]
        if above & below & ~bits or self.pointers((*self.members, *fresh)) > MOST_POINTERS:
            return False
        if self.picks_from_rows((*self.members, *fresh)) or self.computed_again((*self.members, *fresh)) > MOST_AGAIN:
            return False
        self.members |= dict.fromkeys(fresh)
        self.bits, self.above, self.below = bits, above, below
        return True

    def picks_from_rows(self, members: Sequence[Node]) -> bool:
        """A Gather is a load: neither its source nor its indices may wait for the rows that the group finishes."""
        seeds = self.order.bits(n for n in members if is_seed(n))
        inside = set(members)
        gathers = [n for n in members if isinstance(n, Gather)]
        return any(self.order.above[n] & seeds or base_of(n.x) in inside for n in gathers)

    def computed_again(self, members: Sequence[Node]) -> int:
        """How many Maps of the whole shape are computed in more than one walk, once for each walk but the first."""
        level: dict[Node, int] = {}
        walks: dict[int, set[Node]] = defaultdict(set)
        for node in sorted(members, key=self.order.number.__getitem__):
            level[node] = max((level.get(x, 0) for x in node.operands), default=0) + is_seed(node)
            pending = list(node.operands) if is_seed(node) else []
            while pending:
                x = pending.pop()
                if isinstance(x, Map) and x in level and x.shape == self.shape and x not in walks[level[node]]:
                    walks[level[node]].add(x)
                    pending.extend(x.args)
        return sum(map(len, walks.values())) - len(set[Node]().union(*walks.values()))

    def pointers(self, members: Sequence[Node]) -> int:
        """What is read from outside and what somebody outside may read, at most."""
        inside = set(members)
        loads = {x for n in members for x in n.operands if base_of(x) not in inside and not isinstance(x, Const)}
        users = self.order.users
        stores = {n for n in members if n in self.order.ends or any(u not in inside for u in users[n])}
        return len(loads) + len(stores)


def is_seed(node: Node) -> bool:
    return isinstance(node, (Reduce, Scan))


def key_of(seed: Reduce | Scan) -> Key:
    """Seeds with one key can share a kernel: of one kind, over one shape, along the same axes, from the same end."""
    return type(seed), seed.x.shape, seed.axes, isinstance(seed, Scan) and seed.reverse


def set_bits(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low
