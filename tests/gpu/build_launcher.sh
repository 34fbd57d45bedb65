#!/usr/bin/env bash
# The native launcher (cpp/launch) where the package is not installed: g++ and Python's headers do.
#
#   tests/gpu/build_launcher.sh [PYTHON]
set -eu
cd "$(dirname "$0")/../.."
python=${1:-python3}
ask() { "$python" -c "import sysconfig; print($1)"; }
g++ -O2 -std=c++17 -shared -fPIC -fvisibility=hidden "-I$(ask "sysconfig.get_paths()['include']")" \
  cpp/launch/module.cpp -o "selector/runtime/_launch$(ask "sysconfig.get_config_var('EXT_SUFFIX')")" -ldl
