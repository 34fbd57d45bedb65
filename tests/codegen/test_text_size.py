"""The size of a text with its loops unrolled, and what most of one that is too large is for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from selector.gpu.codegen.text_size import text_size
from selector.gpu.cuda.printer import print_kernel, printed
from selector.gpu.ir.expressions import element, number
from selector.gpu.ir.memory import Point, Store
from selector.gpu.ir.nodes import Body, Comment, For, Kernel, Let, Node
from selector.gpu.ir.views import View
from selector.ir.kinds import Memory
from selector.ir.module import Module
from selector.ir.nodes import Allocate, Block, Evaluate, Expr, FloatImm, Stmt, Var
from selector.ir.remarks import Origin
from selector.ir.types import FLOAT32, INT32
from selector.runtime.plan import AT_ONCE, Part, TextSize

TEXT = "x" * 3000  # of which few are too many
LONG: Expr = Var(TEXT, FLOAT32)


def set_to(name: str, index: int = 0, value: Expr = LONG) -> Store:
    return Store(element(FLOAT32, Var(name, FLOAT32), index), value)


def loop(
    *body: Node, var: str = "i", start: int | str = 0, stop: int | str = 8,
    step: int | None = None, how: str = "unrolled",
) -> For:  # fmt: skip
    by = None if step is None else number(step)
    return For(how, var, number(start), number(stop), by, body)


def module(*stored: str, origins: tuple[Origin, ...] = ()) -> Module:
    body: Stmt = Block((Evaluate(number(0)),))
    for name in stored:
        body = Allocate(name, FLOAT32, (number(8),), Memory.STACK, body)
    return Module("m", (), (), body, origins=origins)


def size(*body: Node, name: str = "kernel_k", of: Module | None = None) -> TextSize:
    kernel = Kernel(name, 32, 1, (), (), body)
    return text_size([printed(kernel, {})], module() if of is None else of)


def largest(*body: Node, name: str = "kernel_k", of: Module | None = None) -> Part:
    found = size(*body, name=name, of=of)
    assert found.seconds > AT_ONCE
    assert found.largest is not None
    return found.largest


LOOPS = {
    "all": (loop(set_to("a"), stop=40), 40),
    "steps": (loop(set_to("a"), start=2, stop=40, step=4), 10),
    "fours": (loop(set_to("a"), stop=40, how="fours"), 4),
    "rolled": (loop(set_to("a"), how="rolled"), 1),
    "short": (loop(set_to("a"), how="plain"), 8),
    "plain": (loop(set_to("a"), stop=40, how="plain"), 1),
    "from a thread's": (loop(set_to("a"), start="t", how="plain"), 1),
    "as long as it takes": (loop(set_to("a"), stop="n"), 1),
    "nested": (loop(loop(set_to("a"), stop=3), stop=5), 15),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name: str) -> None:
    node, copies = LOOPS[name]
    longer = Store(set_to("a").to, Var(f"{TEXT}1", FLOAT32))
    body, more = (node,), (_with(node, longer),)
    assert size(*more).characters - size(*body).characters == copies


def _with(node: Node, store: Store) -> Node:
    if not isinstance(node, For):
        return store
    return For(node.how, node.var, node.start, node.stop, node.step, (_with(node.body[0], store),))


def test_all_characters_are_counted_but_brackets_and_pragmas() -> None:
    body: Body = (set_to("a"), loop(set_to("b"), set_to("c"), how="rolled"))
    kernel = Kernel("kernel_k", 32, 1, (), (), body)
    lines = [line.strip(" {}") for line in print_kernel(kernel).splitlines()]
    assert "#pragma unroll 1" in lines
    assert size(*body).characters == sum(len(x) for x in lines if x[:1] != "#")
    assert size(*body, *body).loops == 2


def test_a_small_one_has_no_largest_part() -> None:
    assert size(set_to("a", value=FloatImm(1.0, FLOAT32))).largest is None


def test_nested_loops_and_equal_statements() -> None:
    both = set_to("b_1", 3), set_to("b_2", 5)
    found = largest(loop(loop(*both, var="j", stop=30), stop=20))
    assert (found.copies, found.loops) == (2 * 20 * 30, ("i", "j"))
    assert found.where.statement.startswith("b_1[3] = xxx")
    assert len(found.where.statement) == 200
    assert found.characters == 2 * 20 * 30 * len(f"b_1[3] = {TEXT};")


def test_the_func_of_what_is_repeated() -> None:
    to = Point("to", "float", View("blur_x", index=number(7)))
    found = largest(to, loop(set_to("to"), stop=99), of=module("blur.x", "blu", "sharp"))
    assert found.where.func == "blur.x"


def test_what_a_statement_reads_is_not_what_it_is_for() -> None:
    read = Let("u32", ("r0",), (element(INT32, Var("staged", INT32), "q" + "x" * 9000),))
    first = Let("int", ("acc_s1_x_thread_id_x",), (number("warp"),))
    body: Sequence[Node] = (first, Comment("acc: 1 instructions"), *(read,) * 40)
    found = largest(*body, of=module("acc", "staged"))
    assert (found.where.func, found.where.stage) == ("acc", "update")
    assert found.where.statement.startswith("const u32 r0")


def test_a_func_with_many_statements_before_one_with_the_longest() -> None:
    """Most of the text is for ``blur``, though no line of it is as long as that of ``sharp``."""
    many = (set_to(f"blur_{c}") for c in ("p", "qq", "rrr", "ssss", "ttttt"))
    longest: Expr = Var("x" * 4000 * 99, FLOAT32)
    found = largest(
        loop(*many, var="blur_s1_y", stop=99), set_to("sharp", value=longest),
        of=module("sharp", "blur"),
    )  # fmt: skip
    assert (found.where.func, found.where.stage) == ("blur", "update")


def test_what_names_no_func_is_for_that_of_its_kernel() -> None:
    assert largest(*(set_to("b"),) * 99, name="kernel_blur").where.func == "blur"


def test_a_func_is_named_as_the_user_knows_it() -> None:
    known = module("blur$1", origins=(Origin("blur$1", "blur", "here.py:3"),))
    found = largest(*(set_to("blur_1"),) * 99, of=known).where
    assert (found.func, found.stage, found.location) == ("blur", "init", "here.py:3")
