#!/bin/sh
# Sees to a C compiler and the system libraries: says nothing if they are there, installs them where it may, else names them.
set -u
LIBRARIES="libjpeg zlib libdeflate libwebp libcurl"
DEBIAN="gcc pkg-config libjpeg62-turbo-dev zlib1g-dev libdeflate-dev libwebp-dev libcurl4-openssl-dev"
[ -f /etc/os-release ] && grep -q '^ID=ubuntu' /etc/os-release && DEBIAN=$(echo "$DEBIAN" | sed s/libjpeg62-turbo-dev/libjpeg-turbo8-dev/)
FEDORA="gcc pkgconf-pkg-config libjpeg-turbo-devel zlib-devel libdeflate-devel libwebp-devel libcurl-devel"
BREW="pkgconf jpeg-turbo libdeflate webp"  # macOS brings libcurl

found() {
    command -v "${CC:-cc}" >/dev/null 2>&1 && command -v pkg-config >/dev/null 2>&1 && pkg-config --exists $LIBRARIES
}

[ -n "${DATAGO_DEPS_PREFIX:-}" ] && exit 0
found && exit 0
as_root=""
if [ "$(id -u)" != 0 ]; then
    as_root="sudo -n"
    $as_root true 2>/dev/null || as_root="no"
fi
if command -v brew >/dev/null 2>&1; then
    brew install $BREW
elif [ "$as_root" != no ] && command -v apt-get >/dev/null 2>&1; then
    $as_root apt-get update -q && $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q $DEBIAN
elif [ "$as_root" != no ] && command -v dnf >/dev/null 2>&1; then
    $as_root dnf install -y $FEDORA
fi
found && exit 0
echo "datago needs a C compiler, pkg-config, libjpeg-turbo, zlib, libdeflate, libwebp and libcurl. Please install:" >&2
echo "  Debian, Ubuntu: apt-get install $DEBIAN" >&2
echo "  Fedora:         dnf install $FEDORA" >&2
echo "  macOS:          brew install $BREW" >&2
exit 1
