"""Regions of PyTorch models are compiled where there is no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("halide")

from selector.interop.regions.graph import Node, Ref, RegionGraph, TensorType
from selector.interop.regions.store import graph_of

WITHOUT = """
import sys
sys.modules["torch"] = None  # to import it is an error
from selector.interop.regions.__main__ import main
sys.exit(main([sys.argv[1], "--target", "sm_90a"]))
"""


def test_regions_are_compiled_without_torch(tmp_path: Path) -> None:
    def of(*shape: int) -> TensorType:
        return TensorType("float16", shape)

    product = Node("aten.mm.default", (Ref(0), Ref(1)), (), of(32, 48))
    graph = RegionGraph((of(32, 16), of(16, 48)), (product,), (2,))
    path = tmp_path / f"{graph.key}.json"
    path.write_text(json.dumps({"graph": json.loads(graph.text), "sizes": {}}))
    assert graph_of(path) == (graph, {})
    command = [sys.executable, "-c", WITHOUT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.glob("*.refused")), done.stdout
    assert (tmp_path / f"{graph.key}.sm_90a.kernel").exists()
    assert "mma" in done.stdout
