# datago._room: what other compiled modules cimport; nothing for Python.
