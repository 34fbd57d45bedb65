"""What fuzzing has found: programs that were a defect, and are a mistake that is told."""

from __future__ import annotations

import pytest

from rules import program_files
from selector.api import compile_module
from selector.diagnostics import EmitError, ParseError, ScheduleError
from selector.ir.parser import parse_module
from selector.ir.verify import verify_given

pytestmark = pytest.mark.verified

AMX = dict(program_files())["amx_conv1d.vir"]


def test_a_function_that_nobody_knows() -> None:
    program = AMX.replace("vector_reduce_add(", "`I`(")
    assert program != AMX
    with pytest.raises(EmitError, match="has no form as plain code"):
        compile_module(parse_module(program), "amx", strict=False, cache=False)


def test_a_function_that_nobody_knows_in_the_place_of_a_sum() -> None:
    program = dict(program_files())["amx_matmul_vnni.vir"].replace("vector_reduce_add(", "input(")
    with pytest.raises(EmitError, match="has no form as plain code"):
        compile_module(parse_module(program), "amx", strict=False, cache=False)


def test_infinity_where_a_number_should_be() -> None:
    program = AMX.replace("[(0, ", "[(inf, ", 1)
    with pytest.raises(ParseError, match="not a valid program"):
        verify_given(parse_module(program))


def test_an_accumulator_without_extents() -> None:
    program = AMX.replace("acc[float32 * 256]", "acc[float32]").replace("AMXTile", "Stack")
    assert program != AMX
    with pytest.raises(ScheduleError, match="computed on the host"):
        compile_module(parse_module(program), "sm_80", strict=False, cache=False)


@pytest.mark.parametrize("extent", [0, -4])
def test_a_block_without_threads(extent: int) -> None:
    program = dict(program_files())["conv1d.vir"]
    thread = "thread_id_x, 0, 4)"
    assert program.count(thread) == 1
    module = parse_module(program.replace(thread, f"thread_id_x, 0, {extent})"))
    with pytest.raises(ScheduleError, match=f"has an extent of {extent}"):
        compile_module(module, "sm_80", cache=False)


def test_two_parameters_of_one_name() -> None:
    line = next(line for line in AMX.splitlines() if line.startswith("input K"))
    with pytest.raises(ParseError, match="two parameters named `K`"):
        verify_given(parse_module(AMX.replace(line, f"{line}\n{line}")))
