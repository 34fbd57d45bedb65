"""Make the environment: check the machine, create ``.venv``, install the project and its locked
dependencies.

    python3 requirements/install.py run|dev

``run`` installs what the demo and the service need, ``dev`` the developer's tools as well. Only
the standard library, and only syntax that old Pythons know, so that an unsupported one is told so.
What stops it is said in one line (exit 1).
"""

from __future__ import print_function

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import sysconfig

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
OLDEST, NEWEST = (3, 11), (3, 13)
BUILD_TOOLS = ["scikit-build-core", "pybind11", "cmake", "ninja", "halide"]


def stop(message):
    """End with one line."""
    sys.exit("error: " + message)


def check_machine():
    """Stop if the platform, the Python or the compiler will not do."""
    version = sys.version_info[:2]
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        stop(
            "this needs Linux on x86-64, and this is %s on %s"
            % (platform.system(), platform.machine())
        )
    if not OLDEST <= version <= NEWEST:
        stop(
            "this needs Python %d.%d to %d.%d, and %s is %d.%d; name another with make PYTHON=..."
            % (OLDEST + NEWEST + (sys.executable,) + version)
        )
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        stop(
            "no C++ compiler: %s is not on the PATH (Debian, Ubuntu: apt-get install g++)"
            % compiler
        )
    if not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")):
        stop("no Python.h for %s (Debian, Ubuntu: apt-get install python3-dev)" % sys.executable)


def cuda_major():
    """The CUDA version of the NVIDIA driver (12, 13, ...), 0 without a driver or a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    version, devices = ctypes.c_int(0), ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(devices)) or not devices.value:
        return 0
    return 0 if driver.cuDriverGetVersion(ctypes.byref(version)) else version.value // 1000


def choose_extras(major):
    """The lock and the extras for a driver of CUDA ``major``; 0 compiles CUDA without running
    it.
    """
    if major >= 13:
        return "cuda13", ["cuda13", "compile"]
    return ("cuda12", ["cuda12"]) if major == 12 else ("compile", ["compile"])


def run(what, command):
    """Run a step under a line that says what it is; its own output is shown only if it fails."""
    print("  " + what, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT)
    if done.returncode:
        sys.stdout.write(done.stdout.decode(errors="replace"))
        stop("%s failed (%s)" % (what, " ".join(command[:6])))


def add_library(python, install, name):
    """PyTorch or JAX for CPUs, for the tests of what they see of kernels: where the package index
    has it, and none is installed. The usual PyTorch brings CUDA along, which is gigabytes.
    """
    known = "import importlib.util as i, sys; sys.exit(i.find_spec('%s') is None)" % name
    if subprocess.call([python, "-c", known]) == 0:
        return
    print("  install %s for CPUs" % name, flush=True)
    command = install + ["-r", os.path.join("requirements", name + ".lock")]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT)
    if done.returncode:
        print("    there is none here: its tests are skipped")


def main():
    if sys.argv[1:] not in (["run"], ["dev"]):
        stop("usage: install.py run|dev")
    check_machine()
    lock, extras = choose_extras(cuda_major())
    extras.append("service")
    if sys.argv[1] == "dev":
        extras += ["plots", "ray", "dask", "images", "dev"]
    print(
        "setting up .venv with Python %d.%d, extras %s"
        % (sys.version_info[:2] + (",".join(extras),))
    )
    python = os.path.join(VENV, "bin", "python")
    if not os.path.exists(python):
        run("create the environment", [sys.executable, "-m", "venv", VENV])
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    install += ["--no-compile", "-c", os.path.join("requirements", lock + ".lock")]
    run("install Halide and the build tools", install + BUILD_TOOLS)
    os.environ["PATH"] = os.path.join(VENV, "bin") + os.pathsep + os.environ["PATH"]
    project = ".[%s]" % ",".join(extras)
    run(
        "install dependencies and build the native module",
        install + ["--no-build-isolation", "--editable", project],
    )
    if sys.argv[1] == "dev" and lock == "compile":
        for name in ("torch", "jax"):
            add_library(python, install, name)


if __name__ == "__main__":
    main()
