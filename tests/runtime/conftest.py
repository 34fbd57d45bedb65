"""The native module and a driver without a GPU, both compiled for the tests that want them."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from fake_cuda import ROOT, FakeCuda, build

import selector.runtime
from selector.runtime import early, libcuda, tensor_map

MODULE = "selector.runtime._launch"


@pytest.fixture(scope="session")
def native_module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """``_launch``, from its source."""
    folder = tmp_path_factory.mktemp("launch")
    flags = (
        "-std=c++17",
        "-fvisibility=hidden",
        "-Werror",
        f"-I{sysconfig.get_paths()['include']}",
        "-ldl",
    )
    path = build(folder, ROOT / "cpp/launch/module.cpp", "_launch.so", *flags)
    spec = importlib.util.spec_from_file_location(MODULE, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = Path(__file__).parent / "fake_libcuda.c"
    return build(tmp_path_factory.mktemp("driver"), source, "libcuda.so", "-lpthread")


def forget_driver() -> None:
    """Functions of the driver are looked for anew."""
    tensor_map._encoder.cache_clear()
    early._launcher.cache_clear()


@pytest.fixture
def cuda(
    native_module: ModuleType, library: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeCuda]:
    cuda = FakeCuda(library)
    monkeypatch.setitem(sys.modules, MODULE, native_module)
    monkeypatch.setattr(selector.runtime, "_launch", native_module, raising=False)
    monkeypatch.setattr(libcuda, "NAME", str(library))
    monkeypatch.setitem(sys.modules, "torch", cuda.torch)
    forget_driver()
    for name in ("launches", "maps", "status", "map_status", "mode"):
        cuda.number(f"fake_{name}").value = 0
    cuda.capture(0)
    yield cuda
    forget_driver()
