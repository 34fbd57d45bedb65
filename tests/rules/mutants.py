"""Wrong versions of our rules, made by hand: one mistake each, of the kind that people make.

A line is a rule, a text that occurs in it once, and what somebody might have written instead; where
the search for a program that tells is long, its name.
"""

from __future__ import annotations

from mutation import Mutant

_SUPPORTING = (
    ("lanes-binary", "(= n (lanes a))", "(= m (lanes a)) (= n (* 2 m))"),
    ("lanes-always", "((set (lanes e) n))", "((set (lanes e) 1))"),
    ("lanes-ramp", "(* l n)", "n"),
    ("lanes-vector-ramp", "(* l n)", "(+ l n)"),
    ("lanes-broadcast", "(* l n)", "l"),
    ("lanes-reduce", "((set (lanes e) n))", "((set (lanes e) (* 2 n)))"),
    ("lanes-vnni", "(- g 1)", "g"),
    ("lanes-opaque", "((set (lanes e) n))", "((set (lanes e) 1))"),
    ("gcd-divides", "((set (gcd a b) b))", "((set (gcd a b) a))"),
    ("gcd-divides", "(want-gcd a b) (= 0 (% a b))", "(want-gcd a b)"),
    ("zero-literal", "(Lit t 0)", "(Lit t v)"),
    ("zero-float-literal", "(FLit t 0.0)", "(FLit t v)"),
)

_ARITHMETIC = (
    ("fold-add", "(Int (+ a b))", "(Int (- a b))"),
    ("fold-sub", "(Int (- a b))", "(Int (- b a))"),
    ("fold-mul", "(Int (* a b))", "(Int (+ a b))"),
    ("fold-mul-mul", "(Int (* a b))", "(Int (+ a b))"),
    ("mul-one", "(Int 1)", "(Int 2)"),
    ("mul-zero", '(Bop "*" x (Int 0)) (Int 0)', '(Bop "*" x (Int 0)) x'),
    ("add-zero", '(Bop "+" x (Int 0)) x', '(Bop "+" x (Int 0)) (Int 0)'),
    ("sub-zero", '(Bop "-" x (Int 0))', '(Bop "-" (Int 0) x)'),
    ("add-commutes", '(Bop "+" x y) (', '(Bop "-" x y) ('),
    ("mul-commutes", '(Bop "*" y x)', '(Bop "+" y x)'),
    ("and-true", '"&&"', '"||"'),
    ("true-and", '(Bop "&&" (Always n) p) p', '(Bop "&&" (Always n) p) (Always n)'),
)

_NESTS = (
    ("broadcast-one", "(Broadcast v 1)", "(Broadcast v n)"),
    ("broadcast-broadcast", "(* n m)", "(+ n m)"),
    ("ramp-one", "(Ramp b s 1) b", '(Ramp b s 1) (Bop "+" b s)'),
    ("ramp-zero", "(Int 0)", "(Int 1)"),
    ("ramp-uniform", "(Ramp b s n)", "(Ramp b s l)"),
    ("ramp-uniform", " (= 1 (lanes s))", ""),
    ("ramp-merge", "(= t (* s n)) ", ""),
    (
        "ramp-merge",
        "(= t (* s n))",
        "(= t (* s m))",
        '(Ramp (Ramp (Sym "a") (Int 2) 4) (Int 6) 3)',
    ),
    ("ramp-merge", "(= t (* s n))", "(= t s)"),
    ("ramp-merge-symbol", '(Bop "*" (Sym s) (Int n))', '(Bop "*" (Sym s) (Int m))'),
    ("ramp-merge-scaled", "(= t (* c n)) ", ""),
    ("ramp-merge-scaled", "(= t (* c n))", "(= t n)"),
    ("ramp-merge-scaled", "(= t (* c n))", "(= t c)"),
    ("binary-broadcasts", "(/ m n)", "m"),
    ("binary-broadcasts", " (= 0 (% m n))", ""),
    (
        "binary-broadcasts-left",
        "(Bop o (Broadcast a (/ m n)) b)",
        "(Bop o b (Broadcast a (/ m n)))",
    ),
    ("binary-broadcasts-left", " (= 0 (% m n))", ""),
    ("ramp-plus-broadcast", "(/ m n)", "m"),
    ("ramp-plus-broadcast", " (= 0 (% m n))", ""),
    ("ramp-split-plus-broadcast", '(Bop "*" s (Int (/ n m)))', "s"),
    ("ramp-split-plus-broadcast", '(Bop "*" s (Int (/ n m)))', '(Bop "*" s (Int m))'),
    ("ramp-split-plus-broadcast", " (= 0 (% n m))", ""),
    ("ramp-minus-broadcast", '(Ramp (Bop "-" b', '(Ramp (Bop "+" b'),
    (
        "ramp-split-minus-broadcast",
        '(Bop "-" (Ramp b s (/ n m)) v)',
        '(Bop "-" v (Ramp b s (/ n m)))',
    ),
    ("broadcast-minus-ramp", "(Int -1)", "(Int 1)"),
    ("broadcast-minus-ramp", '(Bop "*" s (Int -1))', "s"),
    (
        "broadcast-minus-ramp",
        '(Bop "-" (Broadcast v (/ m n)) b)',
        '(Bop "-" b (Broadcast v (/ m n)))',
    ),
    ("ramp-plus-ramp", '(Bop "+" s t)', "s"),
    ("ramp-plus-ramp", "(Ramp b t n)", "(Ramp b t m)"),
    ("ramp-minus-ramp", '(Bop "-" s t)', '(Bop "-" t s)'),
    ("ramp-minus-ramp", '(Bop "-" s t)', '(Bop "+" s t)'),
    ("ramp-plus-longer-ramp", '(Bop "*" t (Int (/ m n)))', "t"),
    ("ramp-plus-longer-ramp", "(Ramp b t (/ m n))", "(Ramp b t n)"),
    ("ramp-times-scalar", '(Bop "*" s v)', "s"),
    ("ramp-times-scalar", '(Bop "*" b (Broadcast v l))', "b"),
    ("ramp-times-scalar", "(= 1 (lanes v)) ", ""),
    ("broadcast-cast", "(Cast t (Broadcast v n))", '(Cast "int16" (Broadcast v n))'),
    ("broadcast-load", "(Broadcast p n)", "(Always n)"),
    ("broadcast-load", "(Broadcast i n) (Broadcast p n)", "i p"),
    (
        "broadcast-compare",
        "(Cmp o (Broadcast a n) (Broadcast b n))",
        "(Cmp o (Broadcast b n) (Broadcast a n))",
    ),
    ("broadcast-and", "(Broadcast q n)", "(Broadcast p n)"),
    ("broadcast-always", "(* n m)", "(+ n m)"),
)

_DIVISION = (
    ("want-quotient", " (> c 0)", ""),
    ("want-remainder", " (> c 0)", ""),
    ("quotient", "((union e q))", "((union e r))"),
    ("remainder", "((union e r))", "((union e q))"),
    ("quotient", '(Bop "/"', '(Bop "%"', "remainder fires"),
    ("divided-constant", "(/ (- v r) c)", "(/ v c)"),
    ("divided-constant", "(% (+ (% v c) c) c)", "(% v c)"),
    ("divided-multiple", "(Int (/ g c))", "(Int g)"),
    ("divided-multiple", " (= 0 (% g c))", ""),
    ("divided-sum", " (< most c)", ""),
    ("divided-sum", "(= most (+ ma mb))", "(= most (max ma mb))"),
    ("divided-sum", '(Bop "+" ra rb)', "ra"),
    ("divided-broadcast", "(Broadcast r n) most", "r most"),
    ("divided-steps", " (= 0 (% s c))", ""),
    ("divided-steps", "(Int (/ s c))", "(Int s)"),
    ("divided-symbolic-steps", " (= 0 (% g c))", ""),
    ("divided-within", " (< last c)", ""),
    ("divided-within", "(- n 1)", "(- n 2)"),
    ("divided-within", "(> s 0) ", ""),
    ("want-divided-groups", "(Int c) (/ n g)", "(Int s) (/ n g)"),
    ("want-divided-groups", "\n       (> n g) (= 0 (% n g))", " (> n g)"),
)

_VALUES = (
    ("zero-broadcast", "(= e (Broadcast v n)) (zero v)", "(= e (Broadcast v n))"),
    ("select-load", "(zero z) ", ""),
    ("select-load", '(Bop "&&" q p)', "p"),
    ("select-load", '(Bop "&&" q p)', '(Bop "||" q p)'),
    ("select-cast-load", "(Cast c (Load t b i (", "(Cast t (Load t b i ("),
    ("select-cast-load", '(Bop "&&" q p)', "q"),
    ("select-cast-load", "(zero z) ", ""),
    ("select-product", '((union e (Bop "*" (Cast', '((union e (Bop "+" (Cast'),
    ("select-product", "(zero z)\n", "\n"),
    ("select-product", '(Bop "&&" q p)', "q"),
    ("widen-product", "\n       (product-fits t h) (embeds h w)", "\n       (embeds h w)"),
    (
        "widen-product",
        '((union e (Bop "*" (Cast w a) (Cast w b))))',
        '((union e (Bop "*" (Cast h a) (Cast h b))))',
    ),
    ("cast-cast", "(embeds t h) (embeds h w)", "(embeds t w)"),
    ("cast-cast", "((union e (Cast w", "((union e (Cast h"),
)

_TILES = (
    ("want-one", "(Ramp e (Int 0) 1)", "(Ramp e (Int 0) 2)"),
    ("want-one", "(Ramp e (Int 0) 1)", "(Ramp e (Int 1) 1)"),
    ("want-broadcast", "(Int 0)", "(Int 1)"),
    ("want-broadcast", "(Broadcast b (/ m n))", "(Broadcast b n)"),
    ("want-ramp", '(Bop "*" s (Int (/ m n)))', "s"),
    ("want-ramp", "(Int (/ m n)))", "(Int n))"),
    ("want-ramp", " (= 0 (% m n))", ""),
    ("tile", "b sm sn sk", "b sn sm sk"),
    ("tile", "b sm sn sk", "b sm sk sn"),
    ("product", "(product r A B MN (/ l MN) c)", "(product r A A MN (/ l MN) c)"),
    ("product", "(/ l MN) c", "l c"),
    ("product", '"add"', "o"),
    ("product", '(= x (Bop "*"', "(= x (Bop o"),
    ("product-uncast", "(/ l MN) t", "MN t"),
    ("product-uncast", '"add"', "o"),
    ("block-of-columns", "(block r (/ MN n) n)", "(block r (/ MN n) m)"),
    ("block-of-rows", "(/ MN m))", "MN)"),
    ("block-of-windows", "(block r m n)", "(block r m m)"),
    ("block-of-windows", "(= MN (* m n))", "(= 0 (% MN n))"),
    ("block-of-parts", "(block r M (/ MN M))", "(block r M M)"),
    ("block-of-copies", "(block r M (/ MN M))", "(block r M MN)"),
)

_MASKS = (
    ("mask-always", "(Always (* M K)) (Always (* K N))", "(Always (* M N)) (Always (* K N))"),
    ("split-and", '(Bop "&&" qA rA)', "qA"),
    ("split-and", '(Bop "&&" qB rB)', '(Bop "||" qB rB)'),
    ("split-stays-with-a", "(tile a M N K a0 am (Int 0) ak)", "(tile a M N K a0 am an ak)"),
    ("split-stays-with-a", "(Ramp (Ramp a0 ak K) am M)", "(Ramp (Ramp a0 am M) ak K)"),
    ("split-stays-with-b", "(tile b M N K b0 (Int 0) bn bk)", "(tile b M N K b0 bm bn bk)"),
    ("split-stays-with-b", "(Ramp (Ramp a0 an N) ak K)", "(Ramp (Ramp a0 ak N) an K)"),
    ("split-moves-to-b", "(Ramp (Ramp b0 bn N) bk K)", "(Ramp (Ramp b0 bn N) ak K)"),
    ("split-moves-to-b", "(tile a M N K a0 (Int 0) an ak)", "(tile a M N K a0 am an ak)"),
    (
        "split-moves-to-b-right",
        "(Cmp o (Ramp (Ramp a0 an N) ak K) (Ramp (Ramp b0 bn N) bk K))",
        "(Cmp o (Ramp (Ramp b0 bn N) bk K) (Ramp (Ramp a0 an N) ak K))",
    ),
    ("split-moves-to-a", "(Ramp (Ramp a0 ak K) am M)", "(Ramp (Ramp a0 ak K) ak M)"),
    (
        "split-moves-to-a-right",
        "(tile b M N K b0 bm (Int 0) bk)",
        "(tile b M N K b0 bm bn bk)",
        "band backwards, predicate along the band",
    ),
)

_BANDS = (
    ("band-tile", "b m n (Int 0) k", "b n m (Int 0) k"),
    ("band-tile", "b m n (Int 0) k", "b m n (Int 1) k"),
    ("band-always", "(Always (* M rows)) (Always (* P K))", "(Always (* M rows)) (Always K)"),
    ("band-always", "(* st (- Q 1))", "(* st Q)"),
    ("band-split-and", '(Bop "&&" qI rI)', "qI"),
    ("band-split-and", '(Bop "&&" qT rT)', "rT"),
    ("band-taps", "(Ramp (Ramp a0 ak K) ap P)", "(Ramp (Ramp a0 ap P) ak K)"),
    ("band-taps", "st d 1 (Always", "st d -1 (Always"),
    ("band-taps-reversed", '(Bop "+" a0 (Bop "*" ak (Int (- K 1))))', "a0"),
    (
        "band-taps-reversed",
        '(Bop "+" b0 (Bop "*" bk (Int (- K 1))))',
        '(Bop "+" b0 (Bop "*" bk (Int K)))',
    ),
    ("band-image", "(= first (* (min w 0) (* d (- K 1))))", "(= first 0)"),
    ("band-image", "(= ak (* w (* d ua)))", "(= x (* w (* d ua)))"),
    ("band-image", '(Bop "+" a0 (Int (* ua first)))', '(Bop "+" a0 (Int first))'),
    ("band-image", "(Int ua) rows", "(Int an) rows"),
)

_PRODUCTS = (
    ("matmul", "(Matrix ta a a0 am M ak K", "(Matrix ta a a0 ak M am K"),
    ("matmul", "(Matrix tb b b0 bk K bn N", "(Matrix tb b b0 bn K bk N"),
    ("matmul", "(matmul r M N K\n", "(matmul r N M K\n"),
    ("matmul", '(Bop "&&" pA qA)', "pA"),
    ("matmul", '(Bop "&&" pB qB)', "qB"),
    ("matmul", "(tile i M N K a0 am (Int 0) ak)", "(tile i M N K a0 am an ak)"),
    ("matmul", "(tile j M N K b0 (Int 0) bn bk)", "(tile j M N K b0 bm bn bk)"),
    ("matmul", "ta tb c))", "tb tb ta))"),
    ("matmul", "(Matrix ta a a0", "(Matrix ta b a0"),
)

_CONVOLUTIONS = (
    ("scaled-constant", "(- 0 c)", "c"),
    ("scaled-symbol", '(Bop "*" s (Int -1)) -1', '(Bop "*" s (Int -1)) 1'),
    ("scaled-product", "(scaled e (Sym v) c)", "(scaled e (Sym v) 1)"),
    ("convolve", "(/ x g) (/ y g) 1", "(/ y g) (/ x g) 1"),
    ("convolve", "(/ x g) (/ y g) 1", "(/ x g) 1 1"),
    ("convolve", '(Bop "*" u (Int g))', "u"),
    ("convolve", "(scaled an u x) (scaled ak u y)", "(scaled an u x) (scaled ak v y)"),
    ("convolve", "(Ramp (Ramp b0 bk K) bp P)", "(Ramp (Ramp b0 bp P) bk K)"),
    ("convolve-reversed", '(Bop "+" a0 (Bop "*" ak (Int (- K 1))))', "a0"),
    (
        "convolve-reversed",
        '(Bop "+" a0 (Bop "*" ak (Int (- K 1))))',
        '(Bop "+" a0 (Bop "*" ak (Int K)))',
    ),
    ("convolve-reversed", '(Bop "*" bk (Int -1))', "bk"),
    ("convolve-reversed", "(/ (- 0 y) g) -1", "(/ (- 0 y) g) 1"),
    ("convolve-one-tap", "(Int x)", "(Int 1)"),
    ("toeplitz", "(* st (- Q 1))", "(* st Q)"),
    ("toeplitz", "(* d (- K 1))", "(* st (- K 1))"),
    ("toeplitz", "(Matrix ta a base am M unit rows", "(Matrix ta a base unit M am rows"),
    ("toeplitz", "rows N st d P", "rows N d st P"),
    ("toeplitz", "rows N st d P", "rows N st d 1"),
    ("toeplitz", '(Bop "&&" pI qI)', "pI"),
    ("toeplitz", '(Bop "&&" pT qT)', "qT"),
    ("convolve-rows", "(/ x g) (/ y g)", "(/ y g) (/ x g)"),
    ("toeplitz-rows", "unit rows an N", "an rows unit N"),
    ("toeplitz-rows", "(* st (- M 1))", "(* st (- N 1))"),
    ("toeplitz-rows", "rows M st d 1", "rows M d st 1"),
    ("toeplitz-rows", "tb ta c))", "ta tb tb))"),
    ("block-of-phases", "(block r (/ MN N) N)", "(block r (/ MN N) n)"),
    ("block-columns-phases", "(columns r M (/ N P) P)", "(columns r M P P)"),
    ("band-phased", "b sm sq sp sk", "b sm sp sq sk"),
    ("band-phased", "b sm sq sp sk", "b sq sm sp sk"),
)

_LOWERING = (
    ("multiply-add", "x A B", "x B A"),
    ("multiply-add", "M N K x", "N M K x"),
    ("multiply-add", '(packing f 1)', "(packing f g)", "packed bytes, K with a rest"),
    ("multiply-add", '(Bop "+" (Move', '(Bop o (Move', "a difference"),
    (
        "multiply-add", "(= x (Load c acc i (Always MN)))", "(= x (Load c acc h (Always MN)))",
        "another accumulator",
    ),
    (
        "multiply-add", "(instruction l f m n ta tb c)", "(instruction h f m n ta tb c)",
        "packed band",
    ),
    ("multiply-add-windows", "x A B", "x B A"),
    ("multiply-add-windows", "M N K x", "N M K x"),
    ("multiply-add-windows", "(part l f M N w ta tb c)", "(part h f M N w ta tb c)"),
    (
        "multiply-add-windows",
        "(= x (Load c acc i (Always MN)))",
        "(= x (Load c acc h (Always MN)))",
    ),
    ("tile-fill", "(TileFill v)", "(TileFill b)"),
    ("tile-read", "((union e (TileRead x)))", "((union e (TileRead b)))"),
    ("block-of-any-parts", "(/ MN M)", "MN"),
    ("block-of-any-copies", "(/ MN M)", "M"),
    ("rows-dense", "(Int 1)", "si"),
    ("rows-gathered", "(dense-rows A (Materialize A))", "(dense-rows A A)"),
    ("rows-of-one", "si 1 ", "si K "),
    ("swizzle", "(Vnni tb K N g B)", "(Vnni tb N K g B)"),
    ("swizzle", "(Materialize (Vnni tb K N g B))", "B"),
    ("swizzle-temporary", "(Vnni tb K N g x)", "x"),
    ("demand-group", "((want d g))", "((union c d))"),
    ("tile-packed", "b sm sn s sg", "b sm sn sg s"),
    ("packed-always", "(Always (* K N))", "(Always (* K M))"),
    ("packed-split-and", '(Bop "&&" qB rB)', "qB"),
    ("packed-split", "(tile-packed a M N K g a0 (Int 0) an as ag)",
     "(tile-packed a M N K g a0 am an as ag)"),
    ("matmul-stored-vnni", "(Matrix ta a a0 am M ak K pA)", "(Matrix ta a a0 ak M am K pA)"),
    ("matmul-stored-vnni", "(Int 0) (Int g) (Int 1) sg", "(Int 0) sn (Int 1) sg"),
    ("stored-rows", "(packed-matmul r M N K g D B", "(packed-matmul r N M K g D B"),
    ("multiply-add-packed", "x A B", "x B A"),
    ("multiply-add-packed", "M N K x", "N M K x"),
)  # fmt: skip

EQUIVALENT = (
    (
        "widen-product",
        "(product-fits t h) (embeds h w)",
        "(product-fits t h)",
        "a product that fits is exact, so that converting it or its factors rounds or wraps alike",
    ),
    ("want-one", "(want e 1)", "(want e n)", "a ramp of one part is true of every vector"),
    ("convolve", "(> y 0) ", "", "only divisors of positive numbers are asked for"),
    ("convolve-rows", "(> y 0) ", "", "only divisors of positive numbers are asked for"),
    ("convolve-one-tap", "(> x 0)", "(!= x 0)", "one tap may step backwards as well"),
    ("ramp-merge", " (> n 1)", "", "guards against growth, not against a wrong result"),
    ("ramp-plus-ramp", "(> n 1)", "", "guards against growth, not against a wrong result"),
    ("binary-broadcasts-left", "(> m n) ", "", "m = n is the law of the other side, also true"),
    (
        "tile",
        "\n       (= 1 (lanes b))",
        "",
        "the extents make all lanes: b is a scalar",
    ),
    ("quotient", "(union e q)", "(union q e)", "equality has no direction"),
)
"""Changes that no program can tell, and why; they are not run."""

MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant(*line)
    for group in (
        _SUPPORTING, _ARITHMETIC, _NESTS, _DIVISION, _VALUES, _TILES, _MASKS, _BANDS, _PRODUCTS,
        _CONVOLUTIONS, _LOWERING,
    )
    for line in group
)  # fmt: skip

FACTS = (
    '(embeds "int16" "int8")',
    '(embeds "int8" "uint8")',
    '(embeds "uint8" "int8")',
    '(embeds "uint32" "int32")',
    '(embeds "float16" "bfloat16")',
    '(embeds "bfloat16" "float16")',
    '(embeds "float32" "float16")',
    '(embeds "float16" "int32")',
    '(product-fits "int8" "int8")',
    '(product-fits "uint8" "int16")',
    '(product-fits "int16" "int16")',
    '(product-fits "uint16" "int32")',
)
"""Facts about types that are not so."""
