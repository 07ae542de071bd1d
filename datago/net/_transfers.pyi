# datago.net._transfers: apart from this, what other compiled modules cimport.
VERSIONS: str
