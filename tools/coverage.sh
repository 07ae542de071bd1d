#!/bin/sh
# Measures once which lines the tests run, and prints it: of Python by coverage.py; of Cython and C by gcov, which also counts in native
# threads and without the GIL.
#   tools/coverage.sh [TESTS…]
# TESTS are arguments of pytest (default: the tests of `make check`).
# Built in a copy below build/, which stays for the next time. A test that fails here is named, but fails nothing: gcov writes a file
# whenever a process ends, which a few tests notice.
set -eu
cd "$(dirname "$0")/.."
python=$PWD/.venv/bin/python
copy=$PWD/build/coverage
mkdir -p "$copy"
tar -cpf - --exclude=./build --exclude='./.*' --exclude='./datago/*.c' --exclude='*.so' --exclude=__pycache__ . | tar -xpf - -C "$copy"
cd "$copy"
find . -name '*.gcda' -delete
DATAGO_COVERAGE=1 "$python" setup.py -q build_ext --inplace > build.log 2>&1 || { cat build.log; exit 1; }
[ $# != 0 ] || set -- tests
PYTHONPATH=$copy "$python" -m pytest -p no:cacheprovider -q -n 2 --cov=datago --cov-report= -m "not slow and not network and not sanitizer" "$@" || true
"$python" -m coverage report
"$python" tools/coverage.py .
