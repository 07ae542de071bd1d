# datago.engine._pixels: what other compiled modules cimport; nothing for Python.
