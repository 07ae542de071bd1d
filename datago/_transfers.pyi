# Nothing of this module is seen from Python.
