# datago.engine._fallback: what other compiled modules cimport; nothing for Python.
