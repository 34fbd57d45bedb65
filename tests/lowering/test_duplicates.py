"""What is computed twice is computed once, and only that."""

from __future__ import annotations

from functools import partial

from selector.ir import parser
from selector.ir.printer import print_stmt
from selector.ir.types import FLOAT32
from selector.lowering.duplicates import flat, merge_equal, nested, share_values

parse_stmt = partial(parser.parse_stmt, types=dict.fromkeys("xys", FLOAT32))


def merged(text: str) -> tuple[str, dict[str, str]]:
    level, renamed = merge_equal(*flat(parse_stmt(text)))
    return print_stmt(nested(*level)), renamed


HEAD = "allocate a[float32 * 4] in GPUShared\nallocate b[float32 * 4] in GPUShared\n"


def test_equal_fills_are_one_buffer() -> None:
    text, renamed = merged(
        HEAD + "a[ramp(0, 1, 4)] = x[ramp(i, 1, 4)]\nb[ramp(0, 1, 4)] = x[ramp(i, 1, 4)]\n"
        "y[ramp(0, 1, 4)] = a[ramp(0, 1, 4)]*b[ramp(0, 1, 4)]\n"
    )
    assert renamed == {"b": "a"}
    assert "allocate b" not in text
    assert text.count("x[") == 1
    assert "a[ramp(0, 1, 4)]*a[ramp(0, 1, 4)]" in text


def test_what_differs_or_changes_in_between_stays() -> None:
    fill = "{0}[ramp(0, 1, 4)] = x[ramp({1}, 1, 4)]\n"
    a, b = fill.format("a", "i"), fill.format("b", "i")
    use = "y[ramp(0, 1, 4)] = a[ramp(0, 1, 4)]*b[ramp(0, 1, 4)]\n"
    for body in (
        a + fill.format("b", "j") + use,
        a + "x[0] = 1.000000f\n" + b + use,
        a + use + "a[0] = 1.000000f\n" + b + use,
        a + "a[0] = 1.000000f\n" + b + use,
        # The first content of a is read before it is filled again.
        a + use + a + b + use + b + use,
    ):
        assert merged(HEAD + body)[1] == {}, body


def test_another_shape_or_memory_is_another_buffer() -> None:
    body = "a[0] = x[i]\nb[0] = x[i]\n"
    for head in (
        HEAD.replace("b[float32 * 4]", "b[float32 * 5]"),
        HEAD.replace("4] in GPUShared\nallocate b", "4]\nallocate b"),
    ):
        assert merged(head + body)[1] == {}


def shared(body: str) -> str:
    head = "allocate w[float32 * 4] in Register\n"
    allocations, stmts = flat(parse_stmt(head + body))
    return print_stmt(nested(allocations, share_values(allocations, stmts)))


VALUE = "(float32)exp_f32(x[i])"
SUM, FILL = f"s[0] = s[0] + {VALUE}\n", f"w[0] = {VALUE}\n"


def test_a_value_is_read_from_where_it_is_kept() -> None:
    for body in (FILL + SUM, SUM + FILL):
        lines = shared(body).splitlines()
        assert lines[1].strip() == FILL.strip()
        assert lines[2].strip() == "s[0] = s[0] + w[0]"


def test_a_value_of_something_else_by_then_is_computed_again() -> None:
    change = "x[i] = 0.000000f\n"
    for body in (FILL + change + SUM, SUM + change + FILL, SUM + FILL + change + SUM + SUM):
        begun = body.startswith(SUM + FILL)
        first = [FILL, SUM.replace(VALUE, "w[0]")] if begun else []
        wanted = [*first, *body.splitlines()[len(first) :]]
        lines = [line.strip() for line in shared(body).splitlines()[1:]]
        assert lines == [line.strip() for line in wanted]
