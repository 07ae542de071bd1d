# datago.engine._process: what other compiled modules cimport; nothing for Python.
