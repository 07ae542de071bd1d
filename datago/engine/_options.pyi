# datago.engine._options: what other compiled modules cimport; nothing for Python.
