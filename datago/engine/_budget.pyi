# datago.engine._budget: what other compiled modules cimport; nothing for Python.
