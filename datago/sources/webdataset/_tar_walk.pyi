# datago.sources.webdataset._tar_walk: what other compiled modules cimport; nothing for Python.
