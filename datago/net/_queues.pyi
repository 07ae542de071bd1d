# datago.net._queues: what other compiled modules cimport; nothing for Python.
