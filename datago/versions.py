"""Which version of datago this is, and of what it works with: the first line of a bug report."""

import functools


@functools.cache
def own() -> str:
    """datago's version, as it was installed."""
    return _of("datago") or "unknown"


def line() -> str:
    """One line, without a newline."""
    import platform

    others = {name: _of(name) for name in ("numpy", "pillow", "torch")}
    packages = ", ".join(f"{name} {found}" for name, found in others.items() if found)
    return f"datago {own()} ({platform.python_implementation()} {platform.python_version()}, {platform.platform()}; {packages})"


def _of(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version  # it loads the package email

    try:
        return version(package)
    except PackageNotFoundError:
        return None
