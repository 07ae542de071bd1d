#!/bin/sh
# The Python tests of ring, pool, progress and client with native code that a sanitizer watches.
#   tools/sanitize.sh address|thread [pytest arguments]
# Built in a copy below build/, which stays for the next time. The interpreter itself is not instrumented: the sanitizer is preloaded.
set -eu
kind=$1
shift
here=$(cd "$(dirname "$0")/.." && pwd)
python=$here/.venv/bin/python
copy=$here/build/sanitize-$kind
mkdir -p "$copy"
cd "$here"
tar -cpf - --exclude='datago/*.so' --exclude=__pycache__ --exclude='tests/*/build' datago src_c tests bench setup.py pyproject.toml | tar -xpf - -C "$copy"
cd "$copy"
DATAGO_SANITIZE=$kind "$python" setup.py -q build_ext --inplace -j 2 > build.log 2>&1 || { cat build.log; exit 1; }

# Without the tests that measure the process, whose memory is mostly shadow, or take something away from it, and those of which the
# time goes into large pictures.
set -- -p no:faulthandler -p no:cacheprovider --capture=sys -o timeout=180 -q "$@" \
    -k "not descriptors and not memory_is_flat and not stays_small and not import_is_light and not one_cpu and not big_pictures and not does_not_read"
tests="tests/test_ring.py tests/test_client.py tests/test_memory_limit.py tests/test_webdataset.py"
for more in tests/test_progress.py tests/test_pool.py tests/test_order.py; do
    [ -e $more ] && tests="$tests $more"
done

# Without it the loader's random addresses may lie where ThreadSanitizer wants its shadow.
fixed=""
setarch "$(uname -m)" -R true 2>/dev/null && fixed="setarch $(uname -m) -R"
case $kind in
address)
    exec env LD_PRELOAD="$(${CC:-cc} -print-file-name=libasan.so)" PYTHONMALLOC=malloc DATAGO_MAX_TASKS=4 \
        ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
        "$python" -m pytest $tests "$@"
    ;;
thread)
    exec $fixed env LD_PRELOAD="$(${CC:-cc} -print-file-name=libtsan.so)" PYTHONMALLOC=malloc DATAGO_MAX_TASKS=4 \
        TSAN_OPTIONS="exitcode=66 report_signal_unsafe=0" \
        "$python" -m pytest $tests "$@"
    ;;
esac
