"""What threads keep between loops over them lies in their registers, if all cut it up alike."""

from __future__ import annotations

import pytest

from selector.ir.nodes import For, ForKind, Stmt
from selector.ir.parser import parse_module
from selector.ir.printer import print_stmt
from selector.ir.traverse import walk_stmt
from selector.lowering.own_parts import own_parts

MODULE = """module t
input a: float32 [(0, 64, 1)]
output out: float32 [(0, 64, 1)]
body {{
 allocate s[float32 * 16 * 4] in {memory}
 gpu_thread<CUDA> (y, 0, 2) {{
  gpu_thread<CUDA> (x, 0, 4) {{
   s[ramp(x*4 + y*{pitch}, 1, 4)] = x4(0.000000f)
   s[ramp(x*4 + y*{pitch} + {down}, 1, 4)] = x4(1.000000f)
  }}
 }}
 for (k, 0, a.extent.0) {{
  gpu_thread<CUDA> (v, 0, 2) {{
   gpu_thread<CUDA> (u, 0, {threads}) {{
    for (i, 0, 2) {{
     if (((k*2) + i) < a.extent.0) {{
      s[ramp(u*4 + v*32 + i*16, 1, 4)] = s[ramp(u*4 + v*32 + i*16, 1, 4)] + x4(a[k])
     }}
    }}
   }}
  }}
 }}
 gpu_thread<CUDA> (q, 0, 2) {{
  gpu_thread<CUDA> (p, 0, 4) {{
   out[ramp(p*4 + q*32, 1, 4)] = s[ramp(p*4 + q*32 + {back}, 1, 4)]
   out[ramp(p*4 + q*32 + 16, 1, 4)] = s[ramp(p*4 + q*32 + 16, 1, 4)]
  }}
 }}
}}
"""
GOOD = {"memory": "Register", "pitch": 32, "down": 16, "threads": 4, "back": 0}
"""16 x 4 numbers, 4 x 2 to a thread."""


def body(**changed: object) -> Stmt:
    text = MODULE.format(**GOOD | changed).replace("a.extent.0", "64")
    return parse_module(text, "t.vir").body


def test_a_thread_numbers_its_own() -> None:
    found, names = own_parts(body())
    assert names == {"s"}
    text = print_stmt(found)
    assert "allocate s[float32 * 4 * 2]" in text
    assert "s[ramp(4, 1, 4)] = x4(1.000000f)" in text
    assert "s[ramp(i*4, 1, 4)]" in text


def test_what_a_thread_has_in_several_turns_is_numbered_on() -> None:
    """Of 32 numbers in a row four threads have four beside each other, and four 16 further on."""
    changed = {"pitch": 64, "down": 32, "back": 16}
    text = MODULE.format(**GOOD | changed).replace("a.extent.0", "64")
    text = text.replace("float32 * 16 * 4", "float32 * 32 * 4")
    text = text.replace("v*32 + i*16", "v*64 + i*16").replace("q*32 + ", "q*64 + ")
    found, names = own_parts(parse_module(text, "t.vir").body)
    assert names == {"s"}
    printed = print_stmt(found)
    assert "allocate s[float32 * 4 * 2 * 2]" in printed
    assert "s[ramp(8, 1, 4)] = x4(1.000000f)" in printed  # the second row
    assert "s[ramp(i*4, 1, 4)]" in printed
    assert "= s[ramp(4, 1, 4)]" in printed  # the second turn


def test_whole_steps_are_written_out_without_their_condition() -> None:
    found, _ = own_parts(body())
    loops = [s for s in walk_stmt(found) if isinstance(s, For) and s.name == "i"]
    assert [s.kind for s in loops] == [ForKind.UNROLLED, ForKind.SERIAL]
    assert "if" not in print_stmt(loops[0])
    assert "if" in print_stmt(loops[1])


@pytest.mark.parametrize(
    "changed",
    [
        {"memory": "GPUShared"},
        {"pitch": 16},  # rows of two threads each
        {"down": 64},  # beyond the rows of a thread
        {"down": 4},  # a neighbour's
        {"threads": 3},  # another thread does it
        {"back": 4},  # read by a neighbour
    ],
)
def test_what_is_exchanged_stays_in_memory_of_the_block(changed: dict[str, object]) -> None:
    given = body(**changed)
    found, names = own_parts(given)
    assert not names
    assert found is given
