"""ATen's reductions as Reduces and Maps: one row an operator. `REDUCTIONS` also holds normalisations and losses.

16-bit floats are reduced in float32 and rounded once, integers are summed in int64, and `any` and `all` are the largest
and the smallest truth value, as PyTorch has them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kernelwright.capture.call import Call, Translation, Value, cast, in_registers, whole
from kernelwright.capture.call import constant as number
from kernelwright.capture.losses import LOSSES
from kernelwright.capture.normalisations import NORMALISATIONS
from kernelwright.capture.rows import (
    axes_of,
    extent_over,
    formula,
    is_nonzero,
    mean_over,
    norm_over,
    over,
    result,
    result_of,
    variance_over,
    wide,
)
from kernelwright.capture.windows import adaptive_avg_pool
from kernelwright.ir.dtypes import DType, bool_, by_name, int64, uint8
from kernelwright.ir.nodes import Map, Node, Shape


def axes(call: Call) -> Shape:
    """The axes that `dim` names; all of them where the operator has no `dim`."""
    x: Node = call["self"]
    return axes_of(call.arguments.get("dim"), len(x.shape))


def accumulated(fn: str) -> Translation:
    """sum or prod, in the dtype of the result"""

    def translation(call: Call) -> Value:
        if call.type.dtype is bool_:
            return None
        return result(over(fn, wide(call["self"], call.type.dtype), axes(call)), call)

    return translation


def mean(call: Call) -> Value:
    """sum / n; NaN for n = 0"""
    return result(mean_over(wide(call["self"], call.type.dtype), axes(call)), call)


def without_nan(x: Node) -> Node:
    return formula("where", Map("isnan", (x,)), 0, x)


def sum_without_nan(call: Call) -> Value:
    if call.type.dtype.kind != "float":
        return accumulated("sum")(call)
    return result(over("sum", without_nan(wide(call["self"], call.type.dtype)), axes(call)), call)


def mean_without_nan(call: Call) -> Value:
    """The sum of the numbers over their number; NaN where there is none"""
    x = wide(call["self"], call.type.dtype)
    numbers = formula("where", Map("isnan", (x,)), 0, whole(number(1, x.dtype), x.shape))
    return result(formula("div", over("sum", without_nan(x), axes(call)), over("sum", numbers, axes(call))), call)


def nonzero_counted(call: Call) -> Value:
    return result(over("sum", cast(is_nonzero(call["self"]), int64), axes(call)), call)


def extreme(x: Node, fn: str, where: Shape) -> Node | None:
    """The largest or smallest element; of nothing, what PyTorch does is PyTorch's"""
    return None if x.size == 0 else over(fn, cast(x, in_registers(x.dtype)), where)


def extremes(*fns: str) -> Translation:
    """One result for each of max and min"""

    def translation(call: Call) -> Value:
        found = [extreme(call["self"], fn, axes(call)) for fn in fns]
        results = [
            None if x is None or t is None else result_of(x, t) for x, t in zip(found, call.results, strict=True)
        ]
        return None if None in results else results[0] if len(fns) == 1 else tuple(results)

    return translation


def position(fn: str) -> Translation:
    """argmax or argmin: the first of equals; NaN comes before every number"""

    def translation(call: Call) -> Value:
        found = place(call["self"], fn, axes(call))
        return None if found is None else result(found, call)

    return translation


def place(x: Node, fn: str, where: Shape) -> Node | None:
    return extreme(cast(x, uint8) if x.dtype is bool_ else x, f"arg{fn}", where)


def extreme_and_position(fn: str) -> Translation:
    """max or min along one axis, and where: what is not asked for is never computed"""

    def translation(call: Call) -> Value:
        value = extreme(call["self"], fn, axes(call))
        index = place(call["self"], fn, axes(call))
        _, index_type = call.results
        assert index_type is not None
        return None if value is None or index is None else (result(value, call), result_of(index, index_type))

    return translation


def truth(fn: str, of_nothing: bool) -> Translation:
    """any is the largest truth value, all the smallest; a number is true where it is not zero"""

    def translation(call: Call) -> Value:
        x: Node = call["self"]
        if call.arguments.get("dim") == ():
            return cast(is_nonzero(x), call.type.dtype)  # here alone, no axis is none
        if x.size == 0:
            return whole(number(of_nothing, call.type.dtype), call.type.shape)
        return result(over(fn, is_nonzero(x), axes(call)), call)

    return translation


def correction(call: Call) -> float:
    """What is subtracted from n: a number, or yes or no, by default 1"""
    given = call.arguments.get("correction", call.arguments.get("unbiased"))
    return 1 if given is None else float(given)


def variance(call: Call) -> Node:
    return variance_over(wide(call["self"], call.type.dtype), axes(call), correction(call))


def deviation(call: Call) -> Node:
    """The root of the variance"""
    return Map("sqrt", (variance(call),))


def with_mean(call: Call, first: Node) -> Value:
    """PyTorch finds both in one pass, so that the mean of a row with an infinity is no number either"""
    _, mean_type = call.results
    assert mean_type is not None
    mean = mean_over(wide(call["self"], mean_type.dtype), axes(call))
    return result(first, call), result_of(formula("where", Map("isnan", (first,)), first, mean), mean_type)


def norm(call: Call) -> Value:
    """The norm of the elements, as of one long vector"""
    order = call.arguments.get("ord", call.arguments.get("p"))
    x = wide(call["self"], asked_for(call, call["self"].dtype))
    found = norm_over(x, 2.0 if order is None else float(order), axes(call))
    return None if found is None else result(found, call)


def asked_for(call: Call, otherwise: DType) -> DType:
    """The dtype an operator is told to compute in."""
    dtype: Any = call.arguments.get("dtype")
    return otherwise if dtype is None else by_name(str(dtype).removeprefix("torch."))


def matrix_norm(call: Call) -> Value:
    """Frobenius; the largest or smallest sum of a column (1, -1) or a row (inf, -inf); others need singular values"""
    x, order = wide(call["self"], asked_for(call, call["self"].dtype)), call["ord"]
    rows, columns = (axis % len(x.shape) for axis in call["dim"] or (0, 1))
    if x.size == 0 or order not in ("fro", 1, -1, math.inf, -math.inf):
        return None
    if order == "fro":
        return norm(Call(call.target, {**call.arguments, "ord": 2}, call.results))
    inner, outer = (rows, columns) if abs(order) == 1 else (columns, rows)
    sums = over("sum", Map("abs", (x,)), (inner,))
    return result(over("max" if order > 0 else "min", sums, (outer,)), call)


def norm_of_vector_or_matrix(call: Call) -> Value:
    """torch.linalg.norm: of a matrix where an order is named and there are two axes, else of a vector"""
    along = call["dim"] or tuple(range(len(call["self"].shape)))
    return matrix_norm(call) if call["ord"] is not None and len(along) == 2 else norm(call)


def distance(call: Call) -> Value:
    """The norm of self - other"""
    dtype = call.type.dtype
    apart = formula("sub", wide(call["self"], dtype), wide(call["other"], dtype))
    found = norm_over(apart, float(call["p"]), tuple(range(len(apart.shape))))
    return None if found is None else result(found, call)


def log_of_summed_exponentials(call: Call) -> Value:
    """max(x) + log(sum(exp(x - max(x)))); max(x) itself where it is infinite, as the difference then is no number"""
    x = wide(call["self"], call.type.dtype)
    if extent_over(x, axes(call)) == 0 or x.size == 0:
        return whole(number(-math.inf, call.type.dtype), call.type.shape)
    if extent_over(x, axes(call)) == 1:
        return result(x, call)
    largest = over("max", x, axes(call))
    summed = formula("add", Map("log", (over("exponentials", x, axes(call)),)), largest)
    return result(formula("where", Map("isinf", (largest,)), largest, summed), call)


def pooled(rank: int) -> Translation:
    """Adaptive average pooling: to one element, the mean over space; else a reduction over windows"""

    def translation(call: Call) -> Value:
        x: Node = call["self"]
        if any(extent != 1 for extent in call.type.shape[-rank:]) or x.size == 0:
            return adaptive_avg_pool(rank)(call)
        where = tuple(range(len(x.shape) - rank, len(x.shape)))
        return result(mean_over(wide(x, call.type.dtype), where), call)

    return translation


PLAIN: Mapping[str, Translation] = {
    **{f"aten.sum{form}": accumulated("sum") for form in ("", ".dim_IntList")},
    **{f"aten.prod{form}": accumulated("prod") for form in ("", ".dim_int")},
    **{f"aten.mean{form}": mean for form in ("", ".dim")},
    "aten.nansum": sum_without_nan,
    "aten.nanmean": mean_without_nan,
    "aten.count_nonzero": nonzero_counted,
    "aten.count_nonzero.dim_IntList": nonzero_counted,
    "aten.amax": extremes("max"),
    "aten.amin": extremes("min"),
    "aten.max": extremes("max"),
    "aten.min": extremes("min"),
    "aten.aminmax": extremes("min", "max"),
    "aten.max.dim": extreme_and_position("max"),
    "aten.min.dim": extreme_and_position("min"),
    "aten.argmax": position("max"),
    "aten.argmin": position("min"),
    **{f"aten.any{form}": truth("max", of_nothing=False) for form in ("", ".dim", ".dims")},
    **{f"aten.all{form}": truth("min", of_nothing=True) for form in ("", ".dim", ".dims")},
    **{f"aten.var{form}": lambda call: result(variance(call), call) for form in ("", ".dim", ".correction")},
    **{f"aten.std{form}": lambda call: result(deviation(call), call) for form in ("", ".dim", ".correction")},
    **{f"aten.var_mean{form}": lambda call: with_mean(call, variance(call)) for form in ("", ".dim", ".correction")},
    **{f"aten.std_mean{form}": lambda call: with_mean(call, deviation(call)) for form in ("", ".dim", ".correction")},
    "aten.linalg_vector_norm": norm,
    **{f"aten.norm.Scalar{form}": norm for form in ("", "Opt_dim", "Opt_dtype", "Opt_dim_dtype")},
    "aten.frobenius_norm.dim": norm,
    "aten.linalg_matrix_norm": matrix_norm,
    "aten.linalg_matrix_norm.str_ord": matrix_norm,
    "aten.linalg_norm": norm_of_vector_or_matrix,
    "aten.linalg_norm.ord_str": norm_of_vector_or_matrix,
    "aten.dist": distance,
    "aten.logsumexp": log_of_summed_exponentials,
    "aten.special_logsumexp": log_of_summed_exponentials,
    **{f"aten.adaptive_avg_pool{rank}d": pooled(rank) for rank in (1, 2, 3)},
    **{f"aten._adaptive_avg_pool{rank}d": pooled(rank) for rank in (2, 3)},
}

REDUCTIONS: Mapping[str, Translation] = {**PLAIN, **NORMALISATIONS, **LOSSES}
