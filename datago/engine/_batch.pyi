# datago.engine._batch: what other compiled modules cimport; nothing for Python.
