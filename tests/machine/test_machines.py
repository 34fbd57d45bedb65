"""The data of GPUs is that of GPUs; a target finds one; what measures them compiles."""

from __future__ import annotations

import pytest

from selector.diagnostics import TargetError
from selector.machine import MACHINES, Machine, machine_for, machine_named
from selector.machine.kernels import entry, macs, source
from selector.machine.record import Rate
from selector.runtime.nvrtc import compile_to_cubin, resource_usage
from selector.targets import TARGETS, find_target

# Dense TFLOPS of f16 with f32 sums by the data sheets, at boost clocks.
SHEETS = {
    "H200": 989, "H100": 989, "H100 PCIe": 756, "A100": 312, "RTX 3090": 71, "RTX 4090": 165,
    "RTX 5090": 210,
}  # fmt: skip


@pytest.mark.parametrize("m", MACHINES, ids=lambda m: m.name)
def test_a_gpu_is_one(m: Machine) -> None:
    target = find_target(m.target)
    assert target.family == "cuda"
    assert 50 <= m.multiprocessors <= 200
    assert 1000 <= m.megahertz <= 3000
    assert 0.5 * m.dram < m.copy < m.dram < m.l2
    assert 1 << 22 <= m.l2_bytes <= 1 << 28
    assert all(blocks % size == 0 and blocks <= m.multiprocessors for size, blocks in m.clusters)
    assert ("wgmma.f16" in m.rates) == target.has("wgmma")
    assert m.rates["mma.s8"] >= m.rates["mma.f16"]
    assert m.tera_macs("mma.f16") > m.tera_macs("fma.f32") > 5


@pytest.mark.parametrize("name", SHEETS)
def test_rates_are_those_of_the_data_sheet(name: str) -> None:
    """Clocks under load are at most the boost clocks that sheets count with."""
    m = machine_named(name)
    assert m is not None
    rate: Rate = "wgmma.f16" if "wgmma.f16" in m.rates else "mma.f16"
    assert 0.85 <= 2 * m.tera_macs(rate) / SHEETS[name] <= 1.02


def test_a_target_finds_its_gpu() -> None:
    assert machine_for("sm_90a").name == machine_for(find_target("sm_90")).name == "H200"
    assert machine_for("sm_90a", "NVIDIA H100 80GB HBM3").name == "H100"
    assert {machine_for(t).target for t in TARGETS if t not in ("amx", "sm_90")} == {
        m.target for m in MACHINES
    }
    assert machine_named("NVIDIA A100-SXM4-80GB") is machine_for("sm_80")
    assert machine_named("Voodoo") is None


def test_what_no_gpu_can_be_found_for() -> None:
    with pytest.raises(TargetError, match="amx is no target of a GPU"):
        machine_for("amx")
    with pytest.raises(TargetError, match="nothing is known of the GPU 'Voodoo'"):
        machine_for("sm_90a", "Voodoo")
    with pytest.raises(TargetError, match="code for sm_90a does not run on A100"):
        machine_for("sm_90a", "NVIDIA A100-PCIE-40GB")


@pytest.mark.nvrtc
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_120"])
def test_what_measures_compiles(target: str) -> None:
    wide = find_target(target).has("wgmma")
    usages = resource_usage(compile_to_cubin(source(wide=wide), target))
    rates: tuple[Rate, ...] = ("fma.f32", "mma.f16", "mma.f16.f16", "mma.s8")
    rates += ("wgmma.f16", "wgmma.s8") if wide else ()
    others = {"empty", "barrier", "shared_reads", "cache_reads", "chase"}
    assert usages.keys() == {*map(entry, rates), *others}
    assert not any(u.local_accesses for u in usages.values())
    assert macs("mma.f16") == 8 * 16 * 8 * 16
