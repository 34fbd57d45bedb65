"""Which problem of a case study a row of the sweep is, and which libraries do exactly that job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from casestudies.attention.problem import Problem as Attention
from casestudies.common.boundary import CLAMP
from casestudies.common.case import Problem
from casestudies.common.registry import find_case, problem_type
from casestudies.conv_layer.problem import Problem as ConvLayer
from casestudies.gemm.problem import Problem as Gemm
from casestudies.gemm.problem import elements
from casestudies.plain.attention import Problem as PlainAttention
from casestudies.plain.block_mask import Problem as BlockMask
from casestudies.plain.layer import Problem as Layer
from casestudies.plain.lengths import Problem as Lengths
from casestudies.sweep.rows import Fields, Row


def problem_of(row: Row) -> tuple[str, Problem]:
    """The case study and its problem; ``UserError`` with the reason where none takes the row."""
    return FAMILIES[row.family](row.fields)


def unscheduled(row: Row) -> tuple[str, Problem] | None:
    """The same job as a plain algorithm, where the row's problem has a schedule of its own and both
    are measured; None of others.
    """
    values: dict[str, Any] = dict(row.fields)
    own = problem_of(row)[0] == "attention"
    return ("plain.attention", PlainAttention(**values)) if own else None


def libraries_of(case: str, problem: Any) -> tuple[str, ...]:
    """The names of the case's libraries that have the problem's types in and out, without those
    that take long to compile where others do as well.
    """
    if case == "gemm":
        a, _, result = elements(problem.types)
        if result == "f32":
            return ("cuBLAS f32 out",)
        if result == a and a != "s8":
            return ("cuBLAS", "cuBLASLt bias, ReLU", "cuDNN 1 x 1")
        return ("cuBLAS", "cuBLAS columns", "cuBLAS, then torch")
    if case in ("attention", "plain.attention"):
        fused = ("cuDNN fused", "FlashAttention", "memory-efficient")
        alone = problem.score == "soft_cap" or problem.window  # for which these do too much
        return (*fused, "flex_attention") if alone else fused
    if case == "conv_layer":
        return ("cuDNN NHWC", "cuDNN NCHW")
    return tuple(peer.name for peer in find_case(case).peers)


def _gemm(fields: Fields) -> tuple[str, Problem]:
    return "gemm", _made(Gemm, fields)


def _attention(fields: Fields) -> tuple[str, Problem]:
    if "longest" in fields:
        return "plain.lengths", _made(Lengths, fields)
    if "kept" in fields:
        return "plain.block_mask", _made(BlockMask, fields)
    if fields["length"] == 1:
        return "plain.attention", _made(PlainAttention, fields)
    return "attention", _made(Attention, fields)


def _conv(fields: Fields) -> tuple[str, Problem]:
    """A layer; of 1 x 1 taps and no stride it is a product of pixels and weights. Those that the
    case study has no algorithm for are plain jobs.
    """
    values: dict[str, Any] = dict(fields)
    other = fields["layout"] != "NHWC" or fields["types"] != "f16-f16"
    if other or "transposed" in fields:
        return "plain.layer", Layer(**values)
    pixels = values["batch"] * values["height"] * values["width"]
    if values["taps"] == 1 and values["stride"] == 1:
        sizes = pixels, values["filters"], values["channels"]
        return "gemm", Gemm(*sizes, "f16-f16", "nt", "bias-relu")
    names = ("batch", "height", "width", "channels", "filters", "stride", "taps")
    others = {name: values[name] for name in ("dilation", "residual") if name in values}
    layer = {name: values[name] for name in names} | others
    return "conv_layer", ConvLayer(**layer, padded=True, result="f16")


def _sampling(fields: Fields) -> tuple[str, Problem]:
    """By zeros there are as many taps of each phase."""
    values: dict[str, Any] = dict(fields)
    case, factor, taps = f"{values['direction']}sample", values["factor"], values["taps"]
    if case == "upsample":
        taps = -(-taps // factor) * factor
    return case, problem_type(case).of_image(values["width"], values["height"], taps, factor, CLAMP)


def _plain(name: str) -> Callable[[Fields], tuple[str, Problem]]:
    case = f"plain.{name}"
    return lambda fields: (case, _made(problem_type(case), fields))


def _made(kind: Callable[..., Problem], fields: Fields) -> Problem:
    return kind(**fields)


FAMILIES: dict[str, Callable[[Fields], tuple[str, Problem]]] = {
    "gemm": _gemm,
    "attention": _attention,
    "conv": _conv,
    "depthwise": _plain("depthwise"),
    "filter": _plain("filter"),
    "sampling": _sampling,
    "resample": _plain("resize"),
    "scan": _plain("scan"),
    "dct": _plain("dct"),
    "rows": _plain("rows"),
    "banks": _plain("bank"),
}
