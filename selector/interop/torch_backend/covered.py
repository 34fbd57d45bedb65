"""Which operators of aten a region may have, by what they do. Each has a rule in
``halide_bridge.torch_backend``; that both name the same is tested.
"""

from __future__ import annotations


def _aten(names: str) -> frozenset[str]:
    return frozenset(f"aten.{name}" for name in names.split())


PRODUCTS = frozenset(
    {"aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm", "aten.convolution", "selector.attention"}
)
POINTWISE = _aten(
    """abs add bitwise_and bitwise_not bitwise_or ceil clamp clamp_max clamp_min cos
    div elu eq erf exp exp2 expm1 fill floor fmod ge gelu gt hardsigmoid hardswish hardtanh
    isnan le leaky_relu log log1p log2 logical_and logical_not logical_or lt maximum minimum mul ne
    neg pow reciprocal relu remainder round rsqrt rsub sigmoid sign silu sin softplus sqrt
    square sub tan tanh trunc where _to_copy threshold_backward gelu_backward"""
) | {"prims.convert_element_type"}
VIEWS = _aten(
    """_unsafe_view alias cat clone constant_pad_nd expand flip permute reshape select
    slice squeeze transpose t unsqueeze view full full_like zeros_like ones_like split_with_sizes
    upsample_nearest2d"""
) | {"getitem", "prims.iota"}
REDUCTIONS = _aten(
    """amax amin any mean sum var var_mean _softmax _log_softmax native_layer_norm
    native_group_norm avg_pool2d max_pool2d_with_indices embedding"""
)
# Bytes that stand for floats. What makes floats of them is done where these are read, never stored.
OF_CHANNELS = "quantized_decomposed.dequantize_per_channel"
DEQUANTISES = frozenset({"quantized_decomposed.dequantize_per_tensor", OF_CHANNELS})
QUANTISES = frozenset({"quantized_decomposed.quantize_per_tensor"})
COVERED = PRODUCTS | POINTWISE | VIEWS | REDUCTIONS | DEQUANTISES | QUANTISES
# What reads one element for one, whatever its shape: views that only add or drop axes of one.
THIN = frozenset({"aten.unsqueeze", "aten.squeeze", "aten.view", "aten.reshape"})
FLAT = frozenset({"aten.view", "aten.reshape", "aten._unsafe_view"})


def family(op: str) -> str:
    """An operator without its overload: ``aten.add.Tensor`` is ``aten.add``."""
    return ".".join(op.split(".")[:2])
