"""The case studies as programs of the text form, for the explorer page of the compile service.

``python tests/service/case_programs.py`` writes them again, from the schedules as they are.
"""

from __future__ import annotations

from pathlib import Path

from casestudies.common.registry import find_case

FOLDER = Path(__file__).parents[2] / "selector" / "service" / "page" / "programs"
PROGRAMS = {
    "conv1d": "sm_80",
    "conv2d": "sm_80",
    "gemm": "sm_80",
    "gemm_warpgroups": "sm_90a",
    "conv_layer": "sm_80",
    "attention": "sm_80",
    "downsample": "sm_80",
    "upsample": "sm_80",
    "resample": "sm_80",
    "dct_denoise": "sm_80",
    "amx_matmul": "amx",
}
"""The target of each; the name begins with that of its case."""


def program(name: str, target: str) -> str:
    """The loop IR of the smallest problem of a case, with a first line that says what it is."""
    import halide_bridge as hb

    case = find_case(name.removesuffix("_warpgroups"))
    schedule = "amx" if target == "amx" else "tensor"
    output = case.scheduled(case.small[0], schedule, target)
    return f"# {target}: {case.summary}\n{hb.lower(output)}"


def main() -> None:
    """Write them all."""
    for name, target in PROGRAMS.items():
        text = program(name, target)
        (FOLDER / f"{name}.vir").write_text(text.rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
