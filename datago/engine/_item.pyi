# datago.engine._item: what other compiled modules cimport; nothing for Python.
