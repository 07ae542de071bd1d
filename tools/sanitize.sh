#!/bin/sh
# Python with native code that a sanitizer watches: the tests of ring, pool, progress and client, or a script of one's own.
#   tools/sanitize.sh address|thread [SCRIPT ARGUMENTS…]
# Built in a copy below build/, which stays for the next time. The interpreter itself is not instrumented: the sanitizer is preloaded.
set -eu
kind=$1
shift
here=$(cd "$(dirname "$0")/.." && pwd)
python=$here/.venv/bin/python
copy=$here/build/sanitize-$kind
mkdir -p "$copy"
cd "$here"
tar -cpf - --exclude='*.so' --exclude=__pycache__ --exclude='tests/*/build' datago src_c tests bench setup.py pyproject.toml | tar -xpf - -C "$copy"
cd "$copy"
DATAGO_SANITIZE=$kind "$python" setup.py -q build_ext --inplace > build.log 2>&1 || { cat build.log; exit 1; }

if [ $# = 0 ]; then
    # Without the tests that measure the process, whose memory is mostly shadow, or take something away from it, and those of which
    # the time goes into large pictures.
    without="not descriptors and not memory_is_flat and not stays_small and not import_is_light and not one_cpu and not big_pictures"
    without="$without and not does_not_read and not goes_before_it_is_full"
    set -- -m pytest -p no:faulthandler -p no:cacheprovider --capture=sys -o timeout=180 -q -k "$without" \
        tests/engine/test_ring.py tests/test_client.py tests/engine/test_memory_limit.py tests/webdataset/test_webdataset.py
    for more in tests/engine/test_progress.py tests/test_resume.py tests/order/test_order.py; do
        [ ! -e $more ] || set -- "$@" $more
    done
fi
export PYTHONMALLOC=malloc DATAGO_MAX_TASKS=4 PYTHONPATH="$copy"
case $kind in
address)
    export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
    exec env LD_PRELOAD="$(${CC:-cc} -print-file-name=libasan.so)" "$python" "$@"
    ;;
thread)
    # Without `setarch -R` the loader's random addresses may lie where ThreadSanitizer wants its shadow.
    fixed="setarch $(uname -m) -R"
    $fixed true 2>/dev/null || fixed=""
    # Thread-local blocks of libraries that come later are allocated by the loader, whose sizes the runtime guesses and whose frees it
    # takes for races. libjpeg's, which workers use, are part of every thread's stack if it is preloaded too.
    export TSAN_OPTIONS="exitcode=66 report_signal_unsafe=0 intercept_tls_get_addr=0"
    jpeg=$(pkg-config --variable=libdir libjpeg)/libjpeg.so
    exec $fixed env LD_PRELOAD="$(${CC:-cc} -print-file-name=libtsan.so) $jpeg" "$python" "$@"
    ;;
esac
