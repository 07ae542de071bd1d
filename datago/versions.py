"""The versions of datago and of the packages and libraries that it uses, for bug reports."""

import functools


@functools.cache
def own() -> str:
    """datago's version, as it was installed."""
    return _of("datago") or "unknown"


def line() -> str:
    """The versions of datago, Python, the platform and the packages that datago uses, on one line."""
    import platform

    others = {name: _of(name) for name in ("numpy", "pillow", "torch")}
    packages = ", ".join(f"{name} {found}" for name, found in others.items() if found)
    return f"datago {own()} ({platform.python_implementation()} {platform.python_version()}, {platform.platform()}; {packages})"


def libraries() -> str:
    """The versions of the native libraries that datago calls, on one line. It loads them."""
    from datago.engine._pixels import versions
    from datago.net._transfers import VERSIONS

    return f"{versions()}, {VERSIONS}"


def _of(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version  # it loads the package email

    try:
        return version(package)
    except PackageNotFoundError:
        return None
