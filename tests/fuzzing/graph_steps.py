"""What a Func of the graphs of ``graphs`` may be: each step writes one, and says how it is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fuzzing.graph_writer import CHANNELS, KINDS, Input, Source, Writer, cast


def pointwise(g: Writer) -> Source:
    func, kind = g.func(), g.kind()
    g.define(f"{func}[x, y]", kind, g.value(kind, g.random.randint(1, 3)))
    return Source(func, 2, kind)


def planes(g: Writer) -> Source:
    func, kind = g.func(), g.kind()
    g.channel = True
    g.define(f"{func}[x, y, c]", kind, g.value(kind, g.random.randint(1, 3)))
    g.channel = False
    return Source(func, 3, kind)


def values(g: Writer) -> Source:
    func, kind = g.func(), g.kind()
    g.say(f"{func}[x, y] = ({cast(kind, g.value(kind, 2))}, {cast(kind, g.value(kind, 1))})")
    return Source(func, 2, kind, 2)


def channels(g: Writer) -> Source:
    func, kind = g.func(), g.kind()
    kind = "i32" if kind in ("u8", "i8") else kind
    r = g.domain((0, CHANNELS))
    g.channel = True
    term = g.value(kind, 1).replace("c]", f"{r}.x]")
    g.channel = False
    g.say(f"{func}[x, y] += {cast(kind, term)}")
    return Source(func, 2, kind)


def window(g: Writer) -> Source:
    func, kind, r = g.func(), g.kind(), g.random
    low, high = r.randint(-2, 0), r.randint(-2, 0)
    q = g.domain((low, r.randint(1, 5)), (high, r.randint(1, 4)))
    if r.random() < 0.25:
        of = [f"{q}.x <= {q}.y", f"{q}.x + {q}.y < 3", f"({q}.x + x) % 2 == 0", f"{q}.x != 0"]
        g.say(f"{q}.where({r.choice([*of, f'{q}.x + x < {g.width}'])})")
    join = r.choice(["", "", "hl.max", "hl.min"])
    kind = "i32" if not join and kind in ("u8", "i8") else kind
    term = cast(kind, g.value(kind, 1, (f"(x + {q}.x)", f"(y + {q}.y)")))
    if join or r.random() < 0.5:
        g.define(f"{func}[x, y]", kind, g.value(kind, 1))
    own = f"{func}[x, y]"
    g.say(f"{own} = {join}({own}, {term})" if join else f"{own} += {term}")
    return Source(func, 2, kind)


def filtered(g: Writer) -> Source:
    """By an argument's weights, along rows, columns or both."""
    r, table, func = g.random, g.name("K"), g.func()
    of, kind = g.operands()
    taps = [r.choice([2, 3, 5, 8, 9, 16, 21]) for _ in range(r.choice([1, 1, 2]))]
    along = r.randrange(2)
    g.inputs.append(Input(table, of, tuple(taps), table=True))
    g.say(f'{table} = hl.ImageParam({KINDS[of][0]}, {len(taps)}, "{table}")')
    g.say(f"params.append({table})")
    q = g.domain(*((0, n) for n in reversed(taps)))
    start = r.choice(["", f" - {taps[-1] // 2}"])
    at = [f"(x + {q}.x{start})", f"(y + {q}.y)"] if len(taps) == 2 else ["x", "y"]
    if len(taps) == 1:
        at[along] = f"({'xy'[along]}{r.choice(['', '*2'])} + {q}.x{start})"
    weight = f"{table}[{q}.x, {q}.y]" if len(taps) == 2 else f"{table}[{q}.x]"
    g.say(f"{func}[x, y] += {cast(kind, weight)} * {cast(kind, g.read(of, at, True))}")
    return Source(func, 2, kind)


def product(g: Writer) -> Source:
    func, (of, kind) = g.func(), g.operands()
    q = g.domain((0, g.random.choice([3, 8, 16, 20, 32, 50])))
    a, b = (cast(kind, g.read(of, at, True)) for at in ((f"{q}.x", "y"), ("x", f"{q}.x")))
    g.say(f"{func}[x, y] += {a} * {b}")
    return Source(func, 2, kind)


def proportions(g: Writer) -> Source:
    """Of each row or column: softmax, or what is above the mean."""
    if g.exact:
        return pointwise(g)
    r, term, func = g.random, g.func(), g.func()
    g.define(f"{term}[x, y]", "f32", f"{g.read('f32')} * hl.f32(0.0625)")
    rows = r.random() < 0.7
    q = g.domain((0, g.extent(0 if rows else 1)))
    v, own = ("y", f"{term}[{q}.x, y]") if rows else ("x", f"{term}[x, {q}.x]")
    some = g.func()
    if r.random() < 0.6:
        most = g.func()
        g.say(f"{most}[{v}] = hl.maximum({own})")
        g.say(f"{some}[{v}] += hl.exp({own} - {most}[{v}])")
        g.say(f"{func}[x, y] = hl.exp({term}[x, y] - {most}[{v}]) / {some}[{v}]")
    else:
        g.say(f"{some}[{v}] += {own}")
        count = f"hl.f32({g.extent(0 if rows else 1)})"
        g.say(f"{func}[x, y] = {term}[x, y] - {some}[{v}] / {count}")
    return g.held(func, "f32")


def line(g: Writer) -> Source:
    """Of each row, or each column."""
    func, r = g.func(), g.random
    kind = r.choice(["i32", "u32", "i16"]) if g.exact else r.choice(["i32", "f32", "i16"])
    rows = r.random() < 0.6
    q = g.domain((0, g.extent(0 if rows else 1)))
    v, at = ("y", (f"{q}.x", "y")) if rows else ("x", ("x", f"{q}.x"))
    join, term = r.choice(["", "", "hl.max", "hl.min"]), cast(kind, g.value(kind, 1, at))
    if join:
        g.define(f"{func}[{v}]", kind, f"hl.i32({r.randint(0, 3)})")
    g.say(f"{func}[{v}] = {join}({func}[{v}], {term})" if join else f"{func}[{v}] += {term}")
    shown, length = g.func(), g.height if rows else g.width
    g.say(f"{shown}[x, y] = {func}[hl.clamp({g.place(v, length)}, 0, {length - 1})]")
    return Source(shown, 2, kind)


def histogram(g: Writer) -> Source:
    func, r = g.func(), g.random
    q, bins = g.domain((0, g.extent(0)), (0, g.extent(1))), r.choice([8, 16, 37])
    g.say(f"{func}[x] = hl.{r.choice(['i32', 'u32'])}(0)")
    g.say(f"{func}[hl.clamp({g.read('i32', (f'{q}.x', f'{q}.y'))}, 0, {bins - 1})] += 1")
    shown = g.func()
    g.say(f"{shown}[x, y] = hl.i32({func}[hl.clamp({g.read('i32', plain=True)}, 0, {bins - 1})])")
    return Source(shown, 2, "i32")


def scan(g: Writer) -> Source:
    func, r = g.func(), g.random
    kind = r.choice(["i32", "u32", "i16", "u8"]) if g.exact or r.random() < 0.5 else "f32"
    along = r.randrange(2)
    length = (g.width, g.height)[along]
    q = g.domain((1, f"{g.extent(along)} - 1"))
    back = r.random() < 0.25
    now, before = (
        (f"{length - 1} - {q}.x", f"{length} - {q}.x") if back else (f"{q}.x", f"{q}.x - 1")
    )
    g.define(f"{func}[x, y]", kind, g.value(kind, 1))
    own = f"{func}[{f'x, {now}' if along else f'{now}, y'}]"
    a, b = f"hl.Expr({own})", f"hl.Expr({func}[{f'x, {before}' if along else f'{before}, y'}])"
    ways = [f"{a} + {b}", f"hl.max({a}, {b})", f"hl.select({a} > {b}, {a}, {b})"]
    ways += [f"hl.min({a}, {b} + {cast(kind, 'hl.i32(1)')})"]
    if kind == "f32":
        ways = [f"{a}*0.5 + {b}*0.5", f"hl.max({a}, {b})", f"{a} + {b}*hl.f32(0.25)"]
    g.define(own, kind, r.choice(ways))
    return g.held(func, kind)


def search(g: Writer) -> Source:
    """Where something is the largest, or the least, and that."""
    func, kind, r = g.func(), g.kind(), g.random
    q, better = g.domain((0, r.randint(2, 9))), r.choice([">", "<", ">="])
    at = (f"(x + {q}.x)", "y") if r.random() < 0.5 else ("x", f"(y + {q}.x)")
    new, own = cast(kind, g.value(kind, 1, at)), f"{func}[x, y]"
    g.say(f"{own} = (hl.i32(0), {g.read(kind, plain=True)})")
    number = f"hl.select({new} {better} {own}[1], hl.i32({q}.x), {own}[0])"
    g.say(f"{own} = ({number}, hl.select({new} {better} {own}[1], {new}, {own}[1]))")
    shown = g.func()
    g.say(f"{shown}[x, y] = hl.i32({own}[0])*4 + hl.i32({own}[1])")
    return Source(shown, 2, "i32")


def some(g: Writer) -> Source:
    """Elements that are computed again: a row, a column, all, every second one."""
    func, kind, r = g.func(), g.kind(), g.random
    g.define(f"{func}[x, y]", kind, g.value(kind, 1))
    match r.randrange(4):
        case 0:
            g.say(f"{func}[x, {r.randint(0, 3)}] = {g.read(kind, ('x', '0'))}")
        case 1:
            g.say(f"{func}[{r.randint(0, 3)}, y] += {g.read(kind, ('1', 'y'))}")
        case 2:
            g.say(f"{func}[x, y] += {cast(kind, g.value(kind, 1))}")
        case _:
            q = g.domain((0, max(1, g.width // 2)))
            own = f"{func}[{q}.x*2, y]"
            g.define(own, kind, f"{own} + {g.read(kind, (f'{q}.x', 'y'))}")
    return g.held(func, kind)


def total(g: Writer) -> Source:
    func = g.func()
    kind = "i32" if g.exact else g.random.choice(["i32", "f32"])
    q = g.domain((0, g.extent(0)), (0, g.extent(1)))
    g.say(f"{func}[()] += {cast(kind, g.value(kind, 1, (f'{q}.x', f'{q}.y')))}")
    return Source(func, 0, kind)


STEPS: Sequence[tuple[Callable[[Writer], Source], float]] = (
    (pointwise, 22), (planes, 20), (values, 8), (channels, 6), (window, 8), (line, 8),
    (histogram, 6), (scan, 8), (search, 6), (some, 5), (total, 5), (filtered, 12), (product, 8),
    (proportions, 6),
)  # fmt: skip
