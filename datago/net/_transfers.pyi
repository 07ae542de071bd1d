# datago.net._transfers: what other compiled modules cimport; nothing for Python.
