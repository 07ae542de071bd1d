#!/bin/sh
# Fuzzes for so many seconds, on two cores: pictures by libFuzzer; archives, configs, what servers answer and pages by mutators of their
# own, all under ASAN.
#   tools/fuzz.sh [SECONDS]
# Each begins with its kept corpus. What fails is printed, and how to repeat it; the exit code says that something did.
set -eu
seconds=${1:-120}
cd "$(dirname "$0")/.."
mkdir -p build
pictures=skipped
if make -s -C tests/fuzz build > build/fuzz-build.log 2>&1; then
    make -s -C tests/fuzz run SECONDS="$seconds" > build/fuzz-pictures.log 2>&1 &
    pictures=$!
else
    cat build/fuzz-build.log
    echo "SKIPPED: pictures are not fuzzed, since that needs clang with libFuzzer (Debian: clang libclang-rt-dev)" >&2
fi
failed=0
for kind in tar config responses pages; do
    tools/sanitize.sh address tests/fuzz/fuzz_$kind.py --seconds $((seconds / 4)) --seed "$(date +%s)" > build/fuzz-$kind.log 2>&1 \
        || { failed=1; tail -60 build/fuzz-$kind.log; }
    tail -1 build/fuzz-$kind.log
done
if [ "$pictures" != skipped ]; then
    wait "$pictures" || { failed=1; tail -60 build/fuzz-pictures.log; }
    grep -E "^Done|number_of_executed_units|new_units_added|peak_rss" build/fuzz-pictures.log || true
fi
exit $failed
