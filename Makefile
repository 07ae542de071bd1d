# make demo: everything is set up, then real photographs are streamed.
# make check: the checkers, and the tests without a mark; within a minute, for every change.
# make test: those, and the tests that talk to servers on this machine; within four minutes.   make test-all: all tests, some 12 minutes.
# make sanitize: ring, pool and client under ASAN and TSAN.   make fuzz SECONDS=3600: pictures, archives, configs, answers.
# make coverage: which lines of Python, Cython and C the tests of `make check` run.
PYTHON ?= python3
PIP := .venv/bin/pip install -q --disable-pip-version-check

.PHONY: demo check test test-all build lint bench sanitize fuzz coverage wheel clean
demo: build
	.venv/bin/python bench/pictures.py .demo/pictures
	.venv/bin/python bench/demo.py .demo/pictures

# In two processes, since many tests wait. All of the tests run one after the other, since some of these measure this machine's memory.
check: lint
	.venv/bin/python -m pytest -n 2 -m "not slow and not network and not sanitizer" tests

test: build
	.venv/bin/python -m pytest -n 2 -m "not slow and not sanitizer" tests

test-all: build
	.venv/bin/python -m pytest tests

# What .pre-commit-config.yaml runs too.
lint: build
	$(PIP) --group lint
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	PATH=$(CURDIR)/.venv/bin:$$PATH .venv/bin/cython-lint $$(find datago -name '*.pyx' -o -name '*.pxd')
	.venv/bin/clang-format --dry-run -Werror src_c/*.c src_c/*.h
	.venv/bin/mypy

# Only what changed is compiled again.
build: .venv/ready
	@$(PIP) --no-build-isolation -e . > .venv/build.log 2>&1 || { cat .venv/build.log; exit 1; }

.venv/ready: pyproject.toml tools/system_deps.sh
	sh tools/system_deps.sh
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "datago needs Python 3.11 or later: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(PIP) --upgrade pip
	$(PIP) 'setuptools>=80' 'cython>=3.2,<4' --group test
	touch $@

bench: build
	.venv/bin/python bench/pictures.py .demo/pictures
	.venv/bin/python bench/ring.py
	.venv/bin/python bench/stream.py .demo/pictures

# dist/: the sdist, and a wheel with its libraries inside, tried. DATAGO_DEPS_SRC=FOLDER: where their tarballs are.
wheel: build
	$(PIP) --group wheel
	rm -rf dist
	test -f .deps/lib/libcurl.a || bash tools/build_deps.sh .deps
	DATAGO_DEPS_PREFIX=$(CURDIR)/.deps DATAGO_DIST=$(CURDIR)/dist .venv/bin/python -m pytest -rs tests/test_wheel.py

sanitize: build
	tools/sanitize.sh address
	tools/sanitize.sh thread

SECONDS ?= 3600
fuzz: build
	tools/fuzz.sh $(SECONDS)

coverage: build
	$(PIP) --group coverage
	tools/coverage.sh

clean:
	rm -rf .venv .demo .deps build dist *.egg-info tests/c/build
	find datago -name '*.so' -delete -o -name '*.c' -delete
