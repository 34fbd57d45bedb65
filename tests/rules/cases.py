"""For every rule: a graph in which it fires, and a close one in which it must not."""

from __future__ import annotations

A, B, S, T = '(Sym "a")', '(Sym "b")', '(Sym "s")', '(Sym "t")'
V = f"(Ramp {A} (Int 1) 8)"
W = f"(Ramp {B} (Int 2) 8)"
ZERO = '(FLit "float32" 0.0)'
ONE = '(FLit "float32" 1.0)'


def load(index: str, lanes: int, kind: str = "float16", buffer: str = "x", mask: str = "") -> str:
    return f'(Load "{kind}" "{buffer}" {index} {mask or f"(Always {lanes})"})'


def cast(value: str, kind: str = "float32") -> str:
    return f'(Cast "{kind}" {value})'


def bop(op: str, a: str, b: str) -> str:
    return f'(Bop "{op}" {a} {b})'


def less(a: str, b: str) -> str:
    return f'(Cmp "<" {a} {b})'


def nest(base: str, *levels: tuple[str, int]) -> str:
    """Ramps, innermost level first."""
    for stride, count in levels:
        base = f"(Ramp {base} {stride} {count})"
    return base


LOAD8 = load(V, 8)
MASK8 = less(V, f"(Broadcast {B} 8)")
OTHER8 = less(W, f"(Broadcast {B} 8)")

# matmul of one m16n16k16 tile with K = 2: lanes (m, n, k)
K, LANES = 2, 16 * 16 * 2
INDEX_A = f"(Ramp (Broadcast (Ramp {A} (Int 1) 2) 16) {S} 16)"
INDEX_B = f"(Broadcast (Ramp (Ramp {B} {T} 2) (Int 1) 16) 16)"


def reduce(a: str, b: str, op: str = "add", lanes: int = 256) -> str:
    return f'(Reduce "{op}" {bop("*", a, b)} {lanes})'


def product(
    index_a: str = INDEX_A, index_b: str = INDEX_B, mask_a: str = "", mask_b: str = "",
    kinds: tuple[str, str] = ("float16", "float16"), lanes: int = LANES,
) -> str:  # fmt: skip
    a = cast(load(index_a, lanes, kinds[0], "A", mask_a))
    b = cast(load(index_b, lanes, kinds[1], "B", mask_b))
    return reduce(a, b)


def convolution(
    stride: int = 1, step: int = 1, mask_i: str = "", mask_k: str = "", taps: int = 2,
    unit: str = "", image: str = "",
) -> str:  # fmt: skip
    """256 outputs, ``taps`` taps; strides along n and k as given."""
    along_n = f'(Bop "*" {unit} (Int {stride}))' if unit else f"(Int {stride})"
    along_k = f'(Bop "*" {unit} (Int {step}))' if unit else f"(Int {step})"
    index_i = image or f"(Ramp (Ramp {A} {along_k} {taps}) {along_n} 256)"
    index_k = f"(Broadcast (Ramp {B} (Int 1) {taps}) 256)"
    if taps == 1:
        index_i, index_k = image or f"(Ramp {A} {along_n} 256)", f"(Broadcast {B} 256)"
    return product(index_i, index_k, mask_i, mask_k, lanes=256 * taps)


def update(value: str, index: str = "(Ramp (Int 0) (Int 1) 256)", kind: str = "float32") -> str:
    own = f'(Move "wmma" "mem" (Load "{kind}" "t0" {index} (Always 256)))'
    return f'(Store "t0" {index} (Move "mem" "wmma" {bop("+", own, value)}) (Always 256))'


def rows(limit: str, stride: str = "(Int 1)") -> str:
    """m*stride + t < limit over (m, n, k)."""
    return less(f"(Ramp (Broadcast {T} 32) {stride} 16)", f"(Broadcast {limit} 512)")


def columns(limit: str) -> str:
    """n < limit over (m, n, k)."""
    return less(f"(Broadcast (Ramp (Broadcast {T} 2) (Int 1) 16) 16)", f"(Broadcast {limit} 512)")


def columns_right(limit: str) -> str:
    return less(f"(Broadcast {limit} 512)", f"(Broadcast (Ramp (Broadcast {T} 2) (Int 1) 16) 16)")


def rows_right(limit: str) -> str:
    return less(f"(Broadcast {limit} 512)", f"(Ramp (Broadcast {T} 32) (Int 1) 16)")


TAPS_MASK = less(f"(Broadcast (Ramp {T} (Int 1) 2) 256)", f"(Broadcast {S} 512)")
BAND_MASK = less(f"(Ramp (Ramp {T} (Int 1) 2) (Int 1) 256)", f"(Broadcast {S} 512)")
BACK_MASK = less(f"(Ramp (Ramp {T} (Int -1) 2) (Int 1) 256)", f"(Broadcast {S} 512)")
CROSS_MASK = less(f"(Ramp (Ramp {T} (Int 3) 2) (Int 1) 256)", f"(Broadcast {S} 512)")

CHANNELS = convolution(image=f"(Ramp (Ramp (Ramp {A} (Int 16) 2) (Int 1) 16) (Int 16) 16)")


EVEN = bop("*", A, "(Int 2)")
ODD = bop("+", EVEN, "(Int 1)")


def over(vector: str, divisor: int, op: str = "/") -> str:
    """A vector of 8 lanes, divided by a constant."""
    return bop(op, vector, f"(Broadcast (Int {divisor}) 8)")


def phased(phases: int = 2, outputs: int = 128, taps: int = 2, mask_i: str = "") -> str:
    """``outputs`` outputs in ``phases`` phases: the taps vary along them, the image does not."""
    lanes = phases * outputs
    index_i = f"(Ramp (Broadcast (Ramp {A} (Int 1) {taps}) {phases}) (Int 1) {outputs})"
    index_k = f"(Broadcast (Ramp (Ramp {B} (Int {phases}) {taps}) (Int 1) {phases}) {outputs})"
    a = cast(load(index_i, lanes * taps, "float16", "A", mask_i))
    b = cast(load(index_k, lanes * taps, "float16", "B"))
    return reduce(a, b, lanes=lanes)


PHASED_MASK = less(
    f"(Ramp (Broadcast (Ramp {T} (Int 1) 2) 2) (Int 1) 128)", f"(Broadcast {S} 512)"
)
DEMAND_PHASED = f"(demand-phased {nest(A, (S, 3), (T, 2), (B, 4), (A, 16))} 16 4 2 3)"
TWISTED = f"(demand {nest(A, (S, 3), (T, 2), (B, 4), (A, 16))} 16 8 3)"

NOT_A_TERM = '(Atom "float32" 8 "v")'

CASES: dict[str, tuple[str, str]] = {
    # rule: (fires, must not fire)
    "lanes-int": ("(Int 3)", A),
    "lanes-symbol": (A, "(Int 3)"),
    "lanes-literal": ('(Lit "int8" 3)', "(Int 3)"),
    "lanes-float-literal": (ONE, '(Lit "int8" 3)'),
    "lanes-opaque": (NOT_A_TERM, A),
    "lanes-cast": (cast(V, "int16"), V),
    "lanes-binary": (bop("/", V, W), A),
    "lanes-compare": (MASK8, V),
    "lanes-not": (f"(Not {MASK8})", MASK8),
    "lanes-select": (f"(Select {MASK8} {V} {W})", MASK8),
    "lanes-call": (f'(Apply "float32" 8 "sqrt_f32" (vec-of {NOT_A_TERM}))', NOT_A_TERM),
    "lanes-load": (LOAD8, V),
    "lanes-always": ("(Always 4)", A),
    "lanes-ramp": (V, A),
    "lanes-vector-ramp": (f"(RampV {V} {W} 2)", V),
    "lanes-broadcast": (f"(Broadcast {A} 8)", A),
    "lanes-reduce": (f'(Reduce "max" {V} 2)', V),
    "lanes-move": (f'(Move "mem" "wmma" {V})', V),
    "lanes-temporary": (f"(Materialize {V})", V),
    "zero-literal": ('(Lit "int8" 0)', '(Lit "int8" 1)'),
    "zero-float-literal": (ZERO, ONE),
    "zero-broadcast": (f"(Broadcast {ZERO} 8)", f"(Broadcast {ONE} 8)"),
    "fold-add": (bop("+", "(Int 1)", "(Int 2)"), bop("+", A, "(Int 2)")),
    "fold-sub": (bop("-", "(Int 1)", "(Int 2)"), bop("-", A, "(Int 2)")),
    "fold-mul": (bop("*", "(Int 3)", "(Int 2)"), bop("*", A, "(Int 2)")),
    "fold-mul-mul": (
        bop("*", bop("*", A, "(Int 3)"), "(Int 2)"), bop("*", bop("+", A, B), "(Int 2)"),
    ),
    "mul-one": (bop("*", A, "(Int 1)"), bop("*", A, "(Int 2)")),
    "mul-zero": (bop("*", A, "(Int 0)"), bop("*", A, "(Int 2)")),
    "add-zero": (bop("+", A, "(Int 0)"), bop("+", A, "(Int 2)")),
    "sub-zero": (bop("-", A, "(Int 0)"), bop("-", "(Int 0)", A)),
    "add-commutes": (bop("+", A, B), bop("-", A, B)),
    "mul-commutes": (bop("*", A, B), bop("/", A, B)),
    "and-true": (bop("&&", MASK8, "(Always 8)"), bop("||", MASK8, "(Always 8)")),
    "true-and": (bop("&&", "(Always 8)", MASK8), bop("||", "(Always 8)", MASK8)),
    "broadcast-one": (f"(Broadcast {V} 1)", f"(Broadcast {V} 2)"),
    "broadcast-broadcast": (f"(Broadcast (Broadcast {A} 2) 3)", f"(Broadcast {V} 3)"),
    "ramp-one": (f"(Ramp {A} {S} 1)", f"(Ramp {A} {S} 2)"),
    "ramp-zero": (f"(Ramp {A} (Int 0) 4)", f"(Ramp {A} (Int 1) 4)"),
    "ramp-uniform": (f"(RampV {V} (Broadcast {S} 8) 4)", f"(RampV {V} {W} 4)"),
    "ramp-merge": (
        nest(A, ("(Int 2)", 4), ("(Int 8)", 3)), nest(A, ("(Int 2)", 4), ("(Int 9)", 3)),
    ),
    "ramp-merge-symbol": (
        nest(A, (S, 4), (bop("*", S, "(Int 4)"), 3)), nest(A, (S, 4), (bop("*", S, "(Int 5)"), 3)),
    ),
    "ramp-merge-scaled": (
        nest(A, (bop("*", S, "(Int 2)"), 4), (bop("*", S, "(Int 8)"), 3)),
        nest(A, (bop("*", S, "(Int 2)"), 4), (bop("*", T, "(Int 8)"), 3)),
    ),
    "binary-broadcasts": (
        bop("min", f"(Broadcast {V} 2)", f"(Broadcast {A} 16)"),
        bop("min", f"(Broadcast {nest(A, (S, 2))} 3)", f"(Broadcast {nest(A, (S, 3))} 2)"),
    ),
    "binary-broadcasts-left": (
        bop("min", f"(Broadcast {A} 16)", f"(Broadcast {V} 2)"),
        bop("min", f"(Broadcast {nest(A, (S, 2))} 3)", f"(Broadcast {nest(A, (S, 3))} 2)"),
    ),
    "ramp-plus-broadcast": (
        bop("+", nest(A, (S, 4)), f"(Broadcast {B} 4)"),
        bop("+", nest(A, (S, 2), (T, 3)), f"(Broadcast {nest(B, (S, 3))} 2)"),
    ),
    "ramp-split-plus-broadcast": (
        bop("+", nest(A, (S, 4)), f"(Broadcast {nest(B, (T, 2))} 2)"),
        bop("+", nest(A, (S, 4)), f"(Broadcast {B} 4)"),
    ),
    "ramp-minus-broadcast": (
        bop("-", nest(A, (S, 4)), f"(Broadcast {B} 4)"),
        bop("-", f"(Broadcast {B} 4)", nest(A, (S, 4))),
    ),
    "ramp-split-minus-broadcast": (
        bop("-", nest(A, (S, 4)), f"(Broadcast {nest(B, (T, 2))} 2)"),
        bop("-", nest(A, (S, 4)), f"(Broadcast {B} 4)"),
    ),
    "broadcast-minus-ramp": (
        bop("-", f"(Broadcast {B} 4)", nest(A, (S, 4))),
        bop("-", nest(A, (S, 4)), f"(Broadcast {B} 4)"),
    ),
    "ramp-plus-ramp": (bop("+", V, W), bop("-", V, W)),
    "ramp-minus-ramp": (bop("-", V, W), bop("+", V, W)),
    "ramp-plus-longer-ramp": (bop("+", nest(A, (S, 2), (T, 4)), V), bop("+", V, W)),
    "ramp-times-scalar": (
        bop("*", nest(A, ("(Int 1)", 4)), f"(Broadcast {S} 4)"),
        bop("*", nest(A, ("(Int 1)", 4)), f"(Broadcast {nest(B, (S, 2))} 2)"),
    ),
    "broadcast-cast": (f"(Broadcast {cast(V, 'int16')} 2)", cast(f"(Broadcast {V} 2)", "int16")),
    "broadcast-load": (f"(Broadcast {LOAD8} 2)", load(f"(Broadcast {V} 2)", 16)),
    "broadcast-compare": (f"(Broadcast {MASK8} 2)", MASK8),
    "broadcast-and": (
        f"(Broadcast {bop('&&', MASK8, OTHER8)} 2)", f"(Broadcast {bop('||', MASK8, OTHER8)} 2)",
    ),
    "broadcast-always": ("(Broadcast (Always 4) 2)", "(Always 8)"),
    "select-load": (
        f'(Select {MASK8} {LOAD8} (Broadcast (FLit "float16" 0.0) 8))',
        f'(Select {MASK8} {LOAD8} (Broadcast (FLit "float16" 1.0) 8))',
    ),
    "select-cast-load": (
        f"(Select {MASK8} {cast(LOAD8)} (Broadcast {ZERO} 8))",
        f"(Select {MASK8} {cast(LOAD8)} (Broadcast {ONE} 8))",
    ),
    "select-product": (
        f"(Select {MASK8} {bop('*', cast(LOAD8), NOT_A_TERM)} (Broadcast {ZERO} 8))",
        f"(Select {MASK8} {bop('+', cast(LOAD8), NOT_A_TERM)} (Broadcast {ZERO} 8))",
    ),
    "widen-product": (
        cast(bop("*", *(cast(load(i, 8, "int8"), "int16") for i in (V, W))), "int32"),
        cast(bop("*", *(cast(load(i, 8, "uint8"), "int16") for i in (V, W))), "int32"),
    ),
    "cast-cast": (
        cast(cast(load(V, 8, "int8"), "int16"), "int32"),
        cast(cast(load(V, 8, "int32"), "int16"), "int32"),
    ),
    "want-quotient": (over(V, 2), over(V, -2)),
    "want-remainder": (over(V, 2, "%"), over(V, -2, "%")),
    "quotient": (over(nest(EVEN, ("(Int 1)", 8)), 2), over(V, 2)),
    "remainder": (over(nest(EVEN, ("(Int 1)", 8)), 2, "%"), over(V, 2, "%")),
    "divided-constant": ("(want-divided (Int -7) 3)", f"(want-divided {A} 3)"),
    "divided-multiple": (f"(want-divided {EVEN} 2)", f"(want-divided {EVEN} 5)"),
    "want-divided-sum": (f"(want-divided {ODD} 2)", f"(want-divided {EVEN} 2)"),
    "divided-sum": (f"(want-divided {ODD} 2)", f"(want-divided {bop('+', A, '(Int 1)')} 2)"),
    "want-divided-broadcast": (f"(want-divided (Broadcast {EVEN} 8) 2)", f"(want-divided {V} 2)"),
    "divided-broadcast": (
        f"(want-divided (Broadcast {ODD} 8) 2)", f"(want-divided (Broadcast {A} 8) 2)",
    ),
    "want-divided-ramp": (f"(want-divided {V} 2)", f"(want-divided {EVEN} 2)"),
    "divided-steps": (
        f"(want-divided {nest(ODD, ('(Int -4)', 3))} 2)",
        f"(want-divided {nest(ODD, ('(Int 3)', 3))} 2)",
    ),
    "divided-symbolic-steps": (
        f"(want-divided {nest(ODD, (EVEN, 3))} 2)", f"(want-divided {nest(ODD, (S, 3))} 2)",
    ),
    "divided-within": (
        f"(want-divided {nest(bop('+', EVEN, '(Int 1)'), ('(Int 1)', 3))} 4)"
        .replace(EVEN, bop("*", A, "(Int 4)")),
        f"(want-divided {nest(bop('+', bop('*', A, '(Int 4)'), '(Int 2)'), ('(Int 1)', 3))} 4)",
    ),
    "want-divided-groups": (
        f"(want-divided {nest(EVEN, ('(Int 1)', 6))} 2)",
        f"(want-divided {nest(EVEN, ('(Int 1)', 5))} 2)",
    ),
    "want-one": (f"(want {A} 1)", f"(want {V} 2)"),
    "want-broadcast": (f"(want (Broadcast {A} 6) 3)", f"(want (Broadcast {V} 5) 3)"),
    "want-ramp": (f"(want {V} 2)", f"(want {V} 3)"),
    "demand-m": (f"(demand {nest(A, (S, 2), (T, 4), (A, 8))} 8 4 2)", f"(want {V} 8)"),
    "demand-n": (
        f"(demand {nest(A, (S, 2), (T, 4), (A, 8))} 8 4 2)",
        f"(demand {nest(A, (S, 2), (T, 4), (A, 3))} 8 4 2)",
    ),
    "demand-k": (
        f"(demand {nest(A, (S, 2), (T, 4), (A, 8))} 8 4 2)",
        f"(demand {nest(A, (S, 2), (T, 3), (A, 8))} 8 4 2)",
    ),
    "tile": (
        f"(demand {nest(A, (S, 2), (T, 4), (A, 8))} 8 4 2)",
        f"(demand {nest(A, (S, 3), (T, 4), (A, 8))} 8 4 2)",
    ),
    "product": (product(), product().replace('"add"', '"max"')),
    "product-uncast": (
        reduce(load(INDEX_A, LANES, buffer="A"), load(INDEX_B, LANES, buffer="B")),
        reduce(load(INDEX_A, LANES, buffer="A"), load(INDEX_B, LANES, buffer="B"), "max"),
    ),
    "block-of-columns": (product(), product(kinds=("float32", "float32"))),
    "block-of-rows": (product(), product(kinds=("float16", "bfloat16"))),
    "block-of-parts": (
        product(), product(kinds=("int8", "float16"))
    ),
    "block-of-copies": (
        product(), product(kinds=("int8", "float16"))
    ),
    "block-demands": (product(), product(kinds=("float32", "float32"))),
    "mask-operands": (product(), product(kinds=("float32", "float32"))),
    "mask-always": (product(), product(mask_a=rows(S), mask_b=rows(S))),
    "mask-and": (
        product(mask_a=bop("&&", rows(S), rows(T))), product(mask_a=bop("||", rows(S), rows(T)))
    ),
    "split-and": (
        product(mask_a=bop("&&", rows(S), rows(T))), product(mask_a=bop("||", rows(S), rows(T)))
    ),
    "mask-compare": (product(mask_a=rows(S)), product(mask_a=f"(Not {rows(S)})")),
    "split-stays-with-a": (product(mask_a=rows(S)), product(mask_a=columns(S))),
    "split-stays-with-b": (product(mask_b=columns(S)), product(mask_b=rows(S))),
    "split-moves-to-b": (product(mask_a=columns(S)), product(mask_a=rows(S))),
    "split-moves-to-b-right": (product(mask_a=columns_right(S)), product(mask_a=columns(S))),
    "split-moves-to-a": (product(mask_b=rows(S)), product(mask_b=columns(S))),
    "split-moves-to-a-right": (product(mask_b=rows_right(S)), product(mask_b=rows(S))),
    "block-columns": (product(), product(kinds=("float32", "float32"))),
    "want-phases": (phased(), convolution()),
    "block-of-phases": (phased(3, 128), phased(3, 100)),
    "block-columns-phases": (phased(), convolution()),
    "demand-phased-operands": (phased(), convolution()),
    "demand-phased-compare": (phased(mask_i=PHASED_MASK), convolution(mask_i=BAND_MASK)),
    "demand-phased-m": (DEMAND_PHASED, TWISTED),
    "demand-phased-q": (DEMAND_PHASED, DEMAND_PHASED.replace("16 4 2 3", "3 4 2 3")),
    "demand-phased-p": (DEMAND_PHASED, DEMAND_PHASED.replace("16 4 2 3", "16 3 2 3")),
    "demand-phased-k": (DEMAND_PHASED, DEMAND_PHASED.replace("16 4 2 3", "16 4 5 3")),
    "band-phased": (DEMAND_PHASED, DEMAND_PHASED.replace("16 4 2 3", "16 4 2 2")),
    "band-tile": (convolution(), f"(demand {V} 3 3 3)"),
    "band-always": (convolution(), product()),
    "band-and": (
        convolution(mask_i=bop("&&", BAND_MASK, TAPS_MASK)),
        convolution(mask_i=bop("||", BAND_MASK, TAPS_MASK)),
    ),
    "band-split-and": (
        convolution(mask_i=bop("&&", BAND_MASK, TAPS_MASK)),
        convolution(mask_i=bop("||", BAND_MASK, TAPS_MASK)),
    ),
    "band-compare": (convolution(mask_i=BAND_MASK), convolution(mask_i=f"(Not {BAND_MASK})")),
    "band-taps": (convolution(mask_i=TAPS_MASK), convolution(mask_i=BAND_MASK)),
    "band-taps-reversed": (
        convolution(step=-1, mask_i=TAPS_MASK), convolution(step=1, mask_i=TAPS_MASK)
    ),
    "band-image": (convolution(mask_i=BAND_MASK), convolution(mask_i=CROSS_MASK)),
    "matmul": (product(), product(INDEX_A, INDEX_A)),
    "factor-strides": (convolution(), product(kinds=("float32", "float32"))),
    "scaled-constant": ("(factor (Int 2))", f"(factor {A})"),
    "scaled-symbol": (f"(factor {A})", "(factor (Int 2))"),
    "scaled-product": (f"(factor {bop('*', A, '(Int 2)')})", f"(factor {bop('*', A, B)})"),
    "gcd-divides": ("(want-gcd 6 3)", "(want 6 3)".replace("want 6 3", f"want {V} 3")),
    "gcd-ask": ("(want-gcd 6 4)", "(want-gcd 6 3)"),
    "gcd-step": ("(want-gcd 6 4)", "(want-gcd 6 3)"),
    "convolve-ask": (convolution(), product()),
    "convolve": (convolution(), convolution(step=-1)),
    "convolve-reversed": (convolution(step=-1), convolution()),
    "convolve-one-tap": (convolution(taps=1), convolution(taps=2)),
    "toeplitz": (convolution(unit=S), convolution(image=f"(Ramp (Ramp {A} {S} 2) {T} 256)")),
    "convolve-masks": (convolution(), product()),
    "factor-row-strides": (convolution(), product()),
    "convolve-ask-rows": (convolution(), convolution(step=-1)),
    "convolve-rows": (convolution(), convolution(step=-1)),
    "toeplitz-rows": (CHANNELS, convolution(mask_i=BAND_MASK)),
    "multiply-add": (
        update(product()), update(product(), "(Ramp (Int 0) (Int 2) 256)"),
    ),
    "tile-fill": (
        f'(Store "t0" {V} (Move "mem" "wmma" {NOT_A_TERM}) (Always 8))',
        f'(Store "t0" {W} (Move "mem" "wmma" {NOT_A_TERM}) (Always 8))',
    ),
    "tile-read": (
        f'(Move "wmma" "mem" {load(V, 8)})', f'(Move "wmma" "mem" {load(W, 8)})',
    ),
}  # fmt: skip
"""Also used by the soundness test: whatever fires here is compared with the interpreter."""

EXTRA: tuple[str, ...] = (
    convolution(step=-1, mask_i=BACK_MASK),
    convolution(2, 3),
    convolution(2, -4),
    over(nest(ODD, ("(Int 1)", 2), ("(Int 2)", 4)), 2),
    over(nest(bop("+", bop("*", A, "(Int -4)"), "(Int -3)"), ("(Int 1)", 2), ("(Int -8)", 4)), 4),
    over(nest(bop("+", bop("*", A, "(Int 8)"), "(Int 3)"), ("(Int 1)", 2), (EVEN, 4)), 2, "%"),
    over(nest(ODD, ("(Int 3)", 8)), 3, "%"),
    phased(2, 128, 1),
    phased(4, 64, 3),
    phased(3, 128, 5),
)
