#!/usr/bin/env bash
# Every GPU test and benchmark in one call, on a machine with NumPy, CuPy and torch, from what
# build_artifacts.py and build_corpus.py have saved in artifacts/ and artifacts/corpus/; and on its
# CPU what `python -m casestudies.amx_matmul.build artifacts/amx` has saved, if that is there.
#
#   tests/gpu/run_everything.sh [FOLDER FOR RESULTS]
#
# Exit code 1 if anything failed. About 4 minutes on an H200.
set -u
cd "$(dirname "$0")/../.."
results=${1:-out}
mkdir -p "$results"
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
failed=0
python3 tests/gpu/run_all.py --results "$results/results.json" || failed=1
python3 tests/gpu/run_all.py --small --sanitize --results "$results/small.json" || failed=1
python3 tests/gpu/run_corpus.py artifacts/corpus | tail -20
[ "${PIPESTATUS[0]}" -eq 0 ] || failed=1
python3 -m pytest -q tests/gpu || failed=1
if [ -d artifacts/amx ]; then
  python3 -m casestudies.amx_matmul.bench artifacts/amx --results "$results/amx.json" || failed=1
fi
exit $failed
