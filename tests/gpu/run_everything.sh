#!/usr/bin/env bash
# Every GPU test and benchmark in one call, on a machine with NumPy, CuPy and torch, from what
# build_artifacts.py and build_corpus.py have saved in artifacts/ and artifacts/corpus/; and on its
# CPU what `python -m casestudies.amx_matmul.build artifacts/amx` has saved, if that is there; the drawn
# programs of `tests/gpu/build_fuzzed.py artifacts/fuzzed`, and
# artifacts/fuzzed_patient with `--patience 5`; those of the tutorial from build_tutorial.py; pipelines
# that nobody scheduled from `tests/gpu/build_plain.py artifacts/plain`, and, to be timed, from
# `tests/gpu/build_plain.py artifacts/plain_jobs --jobs`, beside those of Halide's Anderson2021 from
# `tests/gpu/build_halide.py artifacts/plain_halide --probes 8`, if they are there.
#
#   tests/gpu/run_everything.sh [FOLDER FOR RESULTS [PART]]
#
# Part 1 times the case studies beside baselines and libraries, part 2 is the rest; without PART both
# run, one after the other. Exit code 1 if anything failed. On an H200 each part takes about 5 minutes.
set -u
cd "$(dirname "$0")/../.."
results=${1:-out}
part=${2:-both}
small=artifacts/patient  # kernels whose waits end, if build_artifacts.py --patience has made them
[ -d "$small" ] || small=artifacts
mkdir -p "$results"
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
failed=0

step() {  # runs a command, notes a failure, and says how long it took
  local begin=$SECONDS
  "$@" || failed=1
  echo "== $((SECONDS - begin)) s: $*"
}

corpus() {
  python3 tests/gpu/run_corpus.py artifacts/corpus | tail -20
  return "${PIPESTATUS[0]}"
}

step tests/gpu/build_launcher.sh
if [ "$part" != 2 ]; then
  step python3 -m casestudies host-time --out "$results/host_time.json"
  step python3 tests/gpu/run_all.py --results "$results/results.json"
  if [ -d artifacts/tutorial ]; then
    step python3 tests/gpu/run_variants.py artifacts/tutorial --results "$results/tutorial.json"
  fi
  if [ -d artifacts/plain_jobs ]; then
    halide=()
    if [ -d artifacts/plain_halide ]; then halide=(--halide artifacts/plain_halide); fi
    step python3 tests/gpu/run_plain.py artifacts/plain_jobs "${halide[@]}" --ahead 14
    step python3 tests/gpu/run_plain.py artifacts/plain_jobs "${halide[@]}" \
      --results "$results/plain.json"
  fi
fi
if [ "$part" != 1 ]; then
  step corpus
  step python3 -m pytest -q tests/gpu
  if [ -d artifacts/fuzzed ]; then
    step python3 tests/gpu/run_fuzzed.py artifacts/fuzzed --results "$results/fuzzed.json"
    step python3 tests/gpu/run_fuzzed.py artifacts/fuzzed --only 100 --sanitize racecheck initcheck synccheck \
      --results "$results/fuzzed_sanitized.json"
  fi
  if [ -d artifacts/fuzzed_patient ]; then
    step python3 tests/gpu/run_fuzzed.py artifacts/fuzzed_patient --only 100 --sanitize memcheck \
      --results "$results/fuzzed_memcheck.json"
  fi
  if [ -d artifacts/plain ]; then
    step python3 tests/gpu/check_plain.py artifacts/plain --sanitize memcheck racecheck synccheck
  fi
  if [ -d artifacts/amx ]; then
    step python3 -m casestudies.amx_matmul.bench artifacts/amx --results "$results/amx.json"
  fi
  step python3 tests/gpu/run_all.py --artifacts "$small" --small --sanitize memcheck --results "$results/small.json"
  step python3 tests/gpu/run_all.py --small --sanitize racecheck --results "$results/races.json"
fi
exit $failed
