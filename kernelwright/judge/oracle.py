"""Weights and a row of inputs come in; for each call a yardstick goes out: float64, eager, and how well conditioned.

Calls are evaluated in order from one state, as the worker makes them: running statistics are part of the answer.
"""

import contextlib
import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from kernelwright.judge.codec import as_real, flatten_arguments, flatten_output, unflatten
from kernelwright.judge.criterion import Jumps, Yardstick, chunks, unit_roundoff, yardstick
from kernelwright.judge.modes import Recording, Replaying, Rounded, Widened, rounded, tf32_by_flags
from kernelwright.judge.reference import Reference, State, seeded
from kernelwright.judge.shortage import is_shortage
from kernelwright.judge.worker import state_of

__all__ = ["FEW_SHOVES", "Answers", "Oracle", "Truth", "same_bits"]

Leaves = list[torch.Tensor]
# Small enough that the answer moves in proportion; scaled to the output's own roundoff afterwards.
PERTURBATION = 2.0**-24
# Where inputs that move by 32 roundings move an element 50 times as far as they should, rounding decides something:
# which of two is larger, on which side of a step. Near ties swap in every other draw, so that 24 catch what swaps.
SHOVE = 32
OUT_OF_PROPORTION = 50.0
LEAST_JUMP = 256.0  # roundings of the output: less is forgiven anyway
STRANGE = 1000.0
FEW_SHOVES, MANY_SHOVES = 4, 24
# Before a failure counts: few miss a lone tie now and then, and many take long.
SEARCHES = (FEW_SHOVES, MANY_SHOVES)
# For each element at which eager jumps and no draw does, a candidate may jump at four, in outputs of thousands.
SPARED_FOR_EACH, SPARED_SHARE = 4, 1024
PERIOD = 1_048_573  # a prime
SMALL = 256  # outputs with fewer elements show too little of eager's error: it is pooled over more draws


@dataclass(frozen=True, slots=True)
class Answers:
    """What a row of calls gave: the tensors of each call's output, and the state afterwards."""

    calls: list[Leaves]
    state: State


@dataclass(frozen=True, slots=True)
class Truth:
    """What a row of calls should give.

    calls     a yardstick for each output tensor of each call
    state     a yardstick for each entry of the state afterwards
    changed   the entries that the calls changed
    """

    calls: list[list[Yardstick]]
    state: dict[str, Yardstick]
    changed: frozenset[str]
    eager: Answers


class Oracle:
    """The reference in its own precision and in float64."""

    def __init__(self, reference: Reference, model: nn.Module, precision: str, draws: int) -> None:
        self.reference = reference
        self.model = model
        self.wide = reference.double(model)
        self.precision = precision
        self.draws = draws
        self.random = False
        self.guarded = True  # a forward may write into its arguments, or return them: it gets copies
        self.widen = False
        self._wide_of: State | None = None
        self.tf32_by_flags = False  # whether some operator of the model may use it
        self._wide_state: State = {}
        self._loaded: dict[int, tuple[State, dict[str, int]]] = {}

    def eager(self, state: State, calls: Sequence[tuple[Any, ...]], seed: int) -> Answers:
        """The reference as it is."""
        with self._flags():
            return self._run(self.model, state, calls, seed)

    def rounded(
        self, state: State, calls: Sequence[tuple[Any, ...]], seed: int, precision: str, results: str = ""
    ) -> Answers | None:
        """The reference with contractions in a lower precision; None if it has none. `results` as in `Rounded`."""
        mode = Rounded(precision, results=results)
        with mode:
            answers = self._run(self.model, state, calls, seed)
        return answers if mode.used else None

    def _as_flags_allow(self, state: State, calls: Sequence[tuple[Any, ...]], seed: int) -> Answers | None:
        operators = tf32_by_flags() if self.reference.device.type == "cuda" else ()
        if not operators:
            return None
        mode = Rounded("tf32", operators)
        with mode:
            answers = self._run(self.model, state, calls, seed)
        self.tf32_by_flags = self.tf32_by_flags or mode.used
        return answers if mode.used else None

    def in_format(self, state: State, calls: Sequence[tuple[Any, ...]], seed: int, precision: str) -> Answers | None:
        """The reference with everything in float16 or bfloat16; None if that does not run."""
        dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[precision]

        def narrow(x: torch.Tensor) -> torch.Tensor:
            return x.to(dtype) if x.is_floating_point() else x

        model = copy.deepcopy(self.model).to(dtype)
        try:
            answers = self._run(
                model, {k: narrow(v) for k, v in state.items()}, [_mapped(args, narrow) for args in calls], seed
            )
        except RuntimeError as error:
            if is_shortage(error):
                raise
            return None
        finally:
            self._loaded.pop(id(model), None)
        return answers

    def from_rounded(self, state: State, calls: Sequence[tuple[Any, ...]], seed: int, precision: str) -> Answers:
        """The reference as it is, on inputs and weights rounded to a format."""

        def narrow(x: torch.Tensor) -> torch.Tensor:
            return rounded(x, precision) if x.is_floating_point() else x

        return self._run(
            self.model, {k: narrow(v) for k, v in state.items()}, [_mapped(args, narrow) for args in calls], seed
        )

    def truth(self, state: State, calls: Sequence[tuple[Any, ...]], seed: int, *, shoves: int = 0) -> Truth:
        """The yardsticks of a row of calls.

        At least so many `shoves` look for elements that jump: some where a candidate fails, few where eager itself
        jumped, many once jumps are seen.
        """
        tape: list[Any] = []
        with self._flags(), self._taped(tape):
            eager = self._run(self.model, state, calls, seed)
        exact = self._exact(state, calls, seed, tape)
        spread = Spread(exact, eager)
        for _ in range(self.draws):
            spread.add(self._exact(*_moved(state, calls, _nudge), seed, tape))
        least = shoves or (FEW_SHOVES if spread.suspicious() else 0)
        for number in range(MANY_SHOVES):
            if number == least and not (least and spread.jumps()):
                break
            spread.shove(self._exact(*_moved(state, calls, _shove), seed, tape))
        pooled = self._pooled_errors(state, calls, seed, tape, spread)
        allowed = self._allowed_errors(state, calls, seed, exact)
        rows = [
            [
                _yardstick(e, g, spread.calls[i][j], pooled[i][j], allowed.calls[i][j])
                for j, (e, g) in enumerate(zip(row, exact.calls[i], strict=True))
            ]
            for i, row in enumerate(eager.calls)
        ]
        changed = frozenset(n for n, e in eager.state.items() if not _left_alone(state[n], e, exact.state[n]))
        after = {
            name: _yardstick(
                eager.state[name], exact.state[name], spread.state[name], 0.0, allowed.state.get(name, 0.0)
            )
            for name in changed
        }
        return Truth(rows, after, changed, eager)

    def searches(self, state: State, calls: Sequence[tuple[Any, ...]], seed: int) -> Iterator[list[Yardstick]]:
        """Of the last call, before a failure counts: by a search for elements that jump, then by a longer one."""
        for shoves in SEARCHES:
            yield self.truth(state, calls, seed, shoves=shoves).calls[-1]

    def _exact(self, state: State, calls: Sequence[tuple[Any, ...]], seed: int, tape: Sequence[Any]) -> Answers:
        wide_state = self._widened_state(state)
        wide_calls = [_mapped(args, _widened) for args in calls]
        if not self.widen:
            try:
                answers = self._run_wide(wide_state, wide_calls, seed, tape)
            except RuntimeError as error:  # a forward that makes float32 of its own meets float64
                if is_shortage(error):
                    raise
                self.widen = True
            else:
                floats = [t for row in answers.calls for t in row if t.is_floating_point()]
                self.widen = any(t.dtype is not torch.float64 for t in floats)
                if not self.widen:
                    return answers
        with Widened():
            return self._run_wide(wide_state, wide_calls, seed, tape)

    def state_after(self, state: State, calls: Sequence[tuple[Any, ...]]) -> State:
        """What a row of calls leaves behind, in float64; one call at a time, for their outputs may be large."""
        wide = self._widened_state(state)
        for args in calls:
            wide = self._exact(wide, [args], 0, ()).state
        return wide

    def _widened_state(self, state: State) -> State:
        if self._wide_of is not state:
            self._wide_of, self._wide_state = state, {name: _widened(t) for name, t in state.items()}
        return self._wide_state

    def _run_wide(self, state: State, calls: Sequence[tuple[Any, ...]], seed: int, tape: Sequence[Any]) -> Answers:
        with Replaying(tape, wide=True) if tape else contextlib.nullcontext():
            return self._run(self.wide, state, calls, seed)

    def _run(self, model: nn.Module, state: State, calls: Sequence[tuple[Any, ...]], seed: int) -> Answers:
        self._load(model, state)
        rows: list[Leaves] = []
        with seeded(seed):
            for args in calls:
                output = self.reference.call(model, self._given(args))
                _, leaves = flatten_output(output)
                rows.append([_as_tensor(leaf, self.reference.device, wide=model is self.wide) for leaf in leaves])
        return Answers(rows, self._state_after(model, state))

    def attempt(self, args: tuple[Any, ...], seed: int) -> None:
        """One call on inputs that the reference may refuse."""
        with seeded(seed):
            self.reference.attempt(self.model, self._given(args))

    def _given(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Copies, for a reference that writes into its inputs or hands them out."""
        return _mapped(args, torch.clone) if self.guarded else args

    def _load(self, model: nn.Module, state: State) -> None:
        """Put the state in. Weights that are there already stay: they can be gigabytes, and forwards change none.

        Buffers are always written: batch norm updates its statistics without counting up their versions.
        """
        loaded, versions = self._loaded.get(id(model), (None, {}))
        known = loaded is state and versions == _weight_versions(model)
        with torch.no_grad():
            for name, tensor in state_of(model).items():
                if not (known and isinstance(tensor, nn.Parameter)):
                    tensor.copy_(state[name])
        self._loaded[id(model)] = state, _weight_versions(model)

    def _state_after(self, model: nn.Module, state: State) -> State:
        """The state as the calls left it; weights that nobody wrote are the given ones themselves."""
        _, versions = self._loaded[id(model)]
        return {
            name: state[name] if versions.get(name) == tensor._version else tensor.detach().clone()
            for name, tensor in state_of(model).items()
        }

    def _pooled_errors(
        self, state: State, calls: Sequence[tuple[Any, ...]], seed: int, tape: Sequence[Any], spread: "Spread"
    ) -> list[list[float]]:
        """Eager's rms error over inputs one rounding away: a scalar that eager happens to get right proves nothing."""
        totals = [[0.0 for _ in row] for row in spread.calls]
        if not any(m.eager.numel() < SMALL and m.settled is None for row in spread.calls for m in row):
            return totals
        draws = max(2 * self.draws, 4)
        for _ in range(draws):
            near = [_mapped(args, _neighbour) for args in calls]
            with self._flags(), Replaying(tape, wide=False) if tape else contextlib.nullcontext():
                found = self._run(self.model, state, near, seed)
            exact = self._exact(state, near, seed, tape)
            for i, row in enumerate(found.calls):
                for j, leaf in enumerate(row):
                    if leaf.numel() < SMALL and leaf.is_floating_point():
                        gap = leaf.double() - exact.calls[i][j]
                        totals[i][j] += _rms(torch.where(spread.calls[i][j].free(), 0.0, gap)) ** 2
        return [[math.sqrt(total / draws) for total in row] for row in totals]

    def _allowed_errors(self, state: State, calls: Sequence[tuple[Any, ...]], seed: int, exact: Answers) -> "Allowed":
        """The rms error of what is allowed: the precision that the user names, or what the reference's flags allow.

        On a GPU PyTorch's default flags allow TF32 in convolutions. Whether eager's own kernel uses it depends on
        the shape; torch.compile's may where eager's does not. What the flags allow counts, not the choice of a kernel.
        """
        none = Allowed([[0.0 for _ in row] for row in exact.calls], {})
        if self.precision == "ieee":
            return none
        if self.precision == "reference":
            answers = self._as_flags_allow(state, calls, seed)
        else:
            answers = self.rounded(state, calls, seed, self.precision)
        if answers is None:
            return none

        def gap(a: torch.Tensor, g: torch.Tensor) -> float:
            return _rms_of_gap(a, g) if a.is_floating_point() else 0.0

        rows = zip(answers.calls, exact.calls, strict=True)
        left = {
            name: gap(value, exact.state[name]) for name, value in answers.state.items() if value is not state[name]
        }
        return Allowed([[gap(a, g) for a, g in zip(*row, strict=True)] for row in rows], left)

    @contextlib.contextmanager
    def _taped(self, tape: list[Any]) -> Iterator[None]:
        if not self.random:
            yield
            return
        with Recording() as recording:
            yield
        tape.extend(recording.tape)

    @contextlib.contextmanager
    def _flags(self) -> Iterator[None]:
        """Under `ieee` eager itself must not use TF32, or its error would excuse the candidate's."""
        if self.precision != "ieee":
            yield
            return
        matmul, cudnn = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        try:
            yield
        finally:
            torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = matmul, cudnn


def _left_alone(before: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether calls do not write it. Eager alone may write what was there, by chance: a mean that rounds to zero."""
    return eager is before or (same_bits(eager, before) and torch.equal(exact, before.to(exact.dtype)))


@dataclass(frozen=True, slots=True)
class Allowed:
    """Errors that a precision brings: of each output, and of what calls leave in the state."""

    calls: list[list[float]]
    state: dict[str, float]


class Spread:
    """How far the oracle's answers move, element by element, as draws come in; of integers, which stay the same."""

    def __init__(self, exact: Answers, eager: Answers) -> None:
        self._exact = exact
        self._draws = 0
        self.calls = [
            [_Moves(g, e) for g, e in zip(*rows, strict=True)] for rows in zip(exact.calls, eager.calls, strict=True)
        ]
        self.state = {name: _Moves(g, eager.state[name]) for name, g in exact.state.items()}

    def add(self, draw: Answers) -> None:
        for moves_row, row in zip(self.calls, draw.calls, strict=True):
            for moves, leaf in zip(moves_row, row, strict=True):
                moves.add(leaf)
        for name, tensor in draw.state.items():
            if self._exact.state[name] is not tensor:
                self.state[name].add(tensor)

    def shove(self, draw: Answers) -> None:
        for moves_row, row in zip(self.calls, draw.calls, strict=True):
            for moves, leaf in zip(moves_row, row, strict=True):
                moves.shove(leaf)

    def suspicious(self) -> bool:
        return any(moves.suspicious() for row in self.calls for moves in row)

    def jumps(self) -> bool:
        return any(moves.jumps() for row in self.calls for moves in row)


class _Moves:
    def __init__(self, exact: torch.Tensor, eager: torch.Tensor) -> None:
        self.exact = exact
        self.draws = 0
        self.sizes: torch.Tensor | None = None  # roots of the sums of squares
        self.low: torch.Tensor | None = None
        self.high: torch.Tensor | None = None
        self.settled = None if eager.is_floating_point() else (exact == eager).reshape(-1)
        self.flips = 0 if self.settled is None else self.settled.numel() - int(self.settled.sum())
        self.eager = eager
        self._usual: tuple[float, float] | None = None

    def add(self, moved: torch.Tensor) -> None:
        self.draws += 1
        if self.settled is not None:
            self._settle(moved)
            return
        new, known = moved.reshape(-1), self.exact.reshape(-1)
        if self.sizes is None:
            # Moves are a 2^24th of what moves: what float32 cannot hold of one is nothing beside a rounding.
            dtype = torch.float64 if self.eager.dtype is torch.float64 else torch.float32
            self.sizes = torch.zeros(known.numel(), dtype=dtype, device=known.device)
        for part in chunks(known):
            gap = new[part].double() - known[part].double()
            self.sizes[part] = torch.hypot(self.sizes[part].double(), gap).to(self.sizes.dtype)

    def shove(self, moved: torch.Tensor) -> None:
        if self.settled is not None:
            self._settle(moved)
            return
        self._widen(moved)

    def _widen(self, moved: torch.Tensor) -> None:
        kind = torch.float64 if self.settled is None else torch.int64
        seen = moved.to(kind).reshape(-1)
        if self.low is None or self.high is None:
            self.low, self.high = (self.exact.to(kind).reshape(-1).clone() for _ in range(2))
        torch.minimum(self.low, seen, out=self.low)
        torch.maximum(self.high, seen, out=self.high)

    def _settle(self, moved: torch.Tensor) -> None:
        assert self.settled is not None
        same = (moved == self.eager).reshape(-1)
        self.settled &= same
        self._widen(moved)
        self.flips = max(self.flips, same.numel() - int(same.sum()))

    def spread(self) -> torch.Tensor | None:
        """The rms of the moves, flat, scaled from the perturbation that was made to the dtype's own roundoff.

        In place of what it is made from: nothing else can be asked afterwards.
        """
        if self.sizes is None:
            return None
        for part in chunks(self.sizes):
            self.sizes[part] = self._moved(part).to(self.sizes.dtype)
        return self.sizes

    def _moved(self, part: slice) -> torch.Tensor:
        assert self.sizes is not None
        scale = unit_roundoff(self.eager.dtype) / PERTURBATION / math.sqrt(self.draws)
        return torch.nan_to_num_(self.sizes[part].double() * scale, nan=0.0, posinf=0.0)

    def suspicious(self) -> bool:
        """Whether eager, or a small move, is off out of proportion somewhere: a jump, or a bad condition."""
        if self.settled is not None:
            return not bool(self.settled.all())
        if self.sizes is None:
            return False
        e, g = self.eager.reshape(-1), self.exact.reshape(-1)
        for part in chunks(g):
            unit, moved = self._unit(part), self._moved(part)
            gap = (e[part].double() - g[part].double()).abs_()
            if bool((gap > self._proportion(moved, unit)).any()) or bool(self._strange(moved, unit).any()):
                return True
        return False

    def jumps(self) -> bool:
        return bool(self.caught().any()) if self.settled is None else not bool(self.settled.all())

    def caught(self) -> torch.Tensor:
        """The elements that were seen to jump."""
        if self.low is None or self.high is None:
            return torch.zeros((), dtype=torch.bool, device=self.exact.device)
        known = self.exact.reshape(-1)
        found = torch.empty_like(known, dtype=torch.bool)
        for part in chunks(known):
            reach = torch.maximum(self.high[part] - known[part], known[part] - self.low[part])
            found[part] = self._beyond(reach, part) | self._hops(reach, part)
        return found.reshape(self.exact.shape)

    def _hops(self, reach: torch.Tensor, part: slice) -> torch.Tensor:
        """Elements that the smallest move makes jump already: much of a move, and hardly more for a larger one."""
        if self.sizes is None:
            return torch.zeros_like(reach, dtype=torch.bool)
        moved = self._moved(part)
        return self._strange(moved, self._unit(part)) & (reach < SHOVE / 4 * moved)

    def _strange(self, moved: torch.Tensor, unit: torch.Tensor) -> torch.Tensor:
        """Moves out of proportion. Beside eager's usual error they are nothing where the answer is rounding throughout,
        the oracle's too: a mean of what was made to have none."""
        return moved > unit.mul(STRANGE).add_(self._typical()[0])

    def free(self) -> torch.Tensor:
        """The elements that jump: seen to, or eager did and others were seen to."""
        caught = self.caught()
        return caught | self.outliers() if bool(caught.any()) else caught

    def outliers(self) -> torch.Tensor:
        """The elements at which eager jumped."""
        e, g = self.eager.reshape(-1), self.exact.reshape(-1)
        found = torch.empty_like(g, dtype=torch.bool)
        for part in chunks(g):
            found[part] = self._beyond(e[part].double() - g[part].double(), part)
        return found.reshape(self.exact.shape)

    def _beyond(self, gap: torch.Tensor, part: slice) -> torch.Tensor:
        moved = self._moved(part) if self.sizes is not None else torch.zeros_like(gap)
        return gap.abs() > self._proportion(moved, self._unit(part))

    def _proportion(self, moved: torch.Tensor, unit: torch.Tensor) -> torch.Tensor:
        """How far elements may be off without having jumped."""
        return (moved * SHOVE).add_(self._typical()[0]).mul_(OUT_OF_PROPORTION).add_(unit, alpha=LEAST_JUMP)

    def _unit(self, part: slice) -> torch.Tensor:
        """One rounding of each element, or of one of the usual size."""
        known = torch.nan_to_num(self.exact.reshape(-1)[part].double(), nan=0.0, posinf=0.0, neginf=0.0)
        smallest = float(torch.finfo(torch.float64).tiny)
        return known.abs_().add_(self._typical()[1]).mul_(unit_roundoff(self.eager.dtype)).add_(smallest)

    def _typical(self) -> tuple[float, float]:
        """Eager's usual error, by the median, for the rms may be one element's that jumped; and the output's size."""
        if self._usual is None:
            step = max(1, self.eager.numel() // 100_000)
            e, g = self.eager.reshape(-1)[::step].double(), self.exact.reshape(-1)[::step].double()
            gap = torch.nan_to_num((e - g).abs())
            self._usual = (float(gap.median()) if gap.numel() else 0.0), _rms(g)
        return self._usual


def _yardstick(eager: torch.Tensor, exact: torch.Tensor, moves: _Moves, pooled: float, allowed: float) -> Yardstick:
    if not eager.is_floating_point():
        seen = Jumps(low=moves.low, high=moves.high, flips=moves.flips)
        return yardstick(eager, eager, None, moves.settled, pooled_rms=0.0, allowance_rms=0.0, jumps=seen)
    jumps = _jumps(eager, exact, moves)
    spread = moves.spread()
    if eager.dtype is torch.float64 and spread is not None:
        # The oracle is no better than eager here; what rounding can do is all there is to go by.
        pooled = max(pooled, 4 * _rms(spread))
    if spread is not None and jumps.low is not None and jumps.high is not None:
        spread = torch.where(jumps.low != jumps.high, 0.0, spread)  # it moved by the jump
    return yardstick(eager, exact.double(), spread, None, pooled_rms=pooled, allowance_rms=allowed, jumps=jumps)


def _jumps(eager: torch.Tensor, exact: torch.Tensor, moves: _Moves) -> Jumps:
    """Between which answers an element that jumps may lie; everywhere else, the exact one."""
    caught = moves.caught()
    if moves.low is None or moves.high is None or not bool(caught.any()):
        return Jumps()
    free = moves.free()
    missed = int((free & ~caught).sum())
    spared = min(SPARED_FOR_EACH * missed, eager.numel() // SPARED_SHARE)
    flat, known, loose, low, high = eager.reshape(-1), exact.reshape(-1), free.reshape(-1), moves.low, moves.high
    for part in chunks(known):
        e, g = flat[part].double(), known[part].double()
        low[part] = torch.where(loose[part], torch.minimum(low[part], e), g)
        high[part] = torch.where(loose[part], torch.maximum(high[part], e), g)
    return Jumps(low=low, high=high, spared=spared)


def _weight_versions(model: nn.Module) -> dict[str, int]:
    return {name: t._version for name, t in state_of(model).items() if isinstance(t, nn.Parameter)}


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    x, y = _bits(a), _bits(b)
    if x.numel() % 8 == 0 and x.storage_offset() % 8 == 0 and y.storage_offset() % 8 == 0:
        x, y = x.view(torch.int64), y.view(torch.int64)
    return all(torch.equal(x[part], y[part]) for part in chunks(x))  # a GPU notes the result of every comparison


def _bits(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous().reshape(-1)
    return x.view(torch.uint8) if x.numel() else torch.empty(0, dtype=torch.uint8)


def _rms(x: torch.Tensor) -> float:
    return _rms_of_gap(x, torch.zeros((), dtype=torch.float64, device=x.device).expand(x.numel()))


def _rms_of_gap(x: torch.Tensor, y: torch.Tensor) -> float:
    """Of what is finite."""
    if not x.numel():
        return 0.0
    total, one, two = 0.0, x.reshape(-1), y.reshape(-1)
    for part in chunks(one):
        gap = one[part].double() - two[part].double()
        total += float(torch.nan_to_num_(gap, nan=0.0, posinf=0.0, neginf=0.0).square_().sum())
    return math.sqrt(total / x.numel())


def _mapped(args: tuple[Any, ...], change: Callable[[torch.Tensor], torch.Tensor]) -> tuple[Any, ...]:
    template, tensors = flatten_arguments(args)
    result: tuple[Any, ...] = unflatten(template, [change(t) for t in tensors])
    return result


def _widened(x: torch.Tensor) -> torch.Tensor:
    if x.is_complex():
        return x.to(torch.complex128)
    return x.double() if x.is_floating_point() else x


def _moved(
    state: State, calls: Sequence[tuple[Any, ...]], move: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[State, list[tuple[Any, ...]]]:
    """Weights and inputs, each moved a little."""
    return {name: move(t) for name, t in state.items()}, [_mapped(args, move) for args in calls]


def _nudge(x: torch.Tensor) -> torch.Tensor:
    """x * (1 +- PERTURBATION), in float64"""
    return _times(x, lambda n: 1 + PERTURBATION * (torch.randint(0, 2, (n,), device=x.device) * 2 - 1).double())


def _shove(x: torch.Tensor) -> torch.Tensor:
    """x * (1 + SHOVE u r) with r from -1 to 1, in float64; u is the dtype's own roundoff, at most float32's"""
    moves = x.is_floating_point() or x.is_complex()
    amount = SHOVE * min(unit_roundoff(x.dtype), PERTURBATION) if moves else 0.0
    return _times(x, lambda n: 1 + amount * (2 * torch.rand(n, device=x.device, dtype=torch.float64) - 1))


def _times(x: torch.Tensor, factors: Callable[[int], torch.Tensor]) -> torch.Tensor:
    """x times random factors, in float64; of large tensors the factors repeat, out of step with any dimension."""
    if x.is_complex():
        return torch.view_as_complex(_times(as_real(x), factors))
    if not x.is_floating_point():
        return x
    flat, moved = x.reshape(-1), torch.empty(x.numel(), dtype=torch.float64, device=x.device)
    drawn = factors(min(x.numel(), PERIOD))
    for start in range(0, x.numel(), PERIOD):
        stop = min(start + PERIOD, x.numel())
        part = flat[start:stop].double() if x.itemsize == 1 else flat[start:stop]  # of eight bits there is no product
        torch.mul(part, drawn[: stop - start], out=moved[start:stop])
    return moved.reshape(x.shape)


def _neighbour(x: torch.Tensor) -> torch.Tensor:
    """Each element or the next number of its dtype."""
    if x.is_complex():
        return torch.view_as_complex(_neighbour(as_real(x)))
    if not x.is_floating_point():
        return x
    if x.dtype not in (torch.float32, torch.float64):
        return x
    flat, near = x.reshape(-1), torch.empty(x.numel(), dtype=x.dtype, device=x.device)
    up = torch.tensor(math.inf, dtype=x.dtype, device=x.device)
    for part in chunks(flat):
        stay = torch.rand(flat[part].shape, device=x.device) >= 0.5
        near[part] = torch.where(stay, flat[part], torch.nextafter(flat[part], up))
    return near.reshape(x.shape)


def _as_tensor(leaf: torch.Tensor | float, device: torch.device, *, wide: bool) -> torch.Tensor:
    """A Python number among the outputs has been a float32 tensor's item, as a rule; a count is exact."""
    if isinstance(leaf, torch.Tensor):
        return as_real(leaf.detach())
    exact = wide or isinstance(leaf, int)
    return torch.tensor(leaf, dtype=torch.float64 if exact else torch.float32, device=device)
