#!/usr/bin/env bash
# Builds what a wheel carries inside: static, position-independent libraries, into a prefix for DATAGO_DEPS_PREFIX.
#
#     tools/build_deps.sh PREFIX
#
# DATAGO_DEPS_SRC=DIR takes the tarballs from a folder instead of the projects' release pages. A file DIR/SOURCES, lines like those
# below with a file name for the url, says that other versions lie there. Nothing is unpacked whose sha256 is not the one named.
#
# TLS is OpenSSL's long-term branch, cut down to what HTTPS needs, since one thread does all downloads: AES-128-GCM goes at 6.4 GB/s
# there and at 0.4 in mbedTLS, which would make a megabyte less of a wheel. It reads no configuration file, and leaves its memory alone
# at exit, when a download thread may still be in it. libcurl speaks HTTP and HTTPS only and brings no certificates: datago
# names a file of them (that of the environment, else certifi's).
# shellcheck disable=SC2046  # where printf makes many options of one pattern
set -euo pipefail

SOURCES="
zlib 1.3.2 bb329a0a2cd0274d05519d61c667c062e06990d72e125ee2dfa8de64f0119d16 https://github.com/madler/zlib/releases/download/v1.3.2/zlib-1.3.2.tar.gz
libdeflate 1.25 d11473c1ad4c57d874695e8026865e38b47116bbcb872bfc622ec8f37a86017d https://github.com/ebiggers/libdeflate/archive/refs/tags/v1.25.tar.gz
libjpeg-turbo 3.2.0 6f30092cef9fb839779646608f4ee14ae3cbac989c47fa05e841b0841f09878e https://github.com/libjpeg-turbo/libjpeg-turbo/releases/download/3.2.0/libjpeg-turbo-3.2.0.tar.gz
libwebp 1.6.0 e4ab7009bf0629fd11982d4c2aa83964cf244cffba7347ecd39019a9e38c4564 https://storage.googleapis.com/downloads.webmproject.org/releases/webp/libwebp-1.6.0.tar.gz
openssl 3.5.9 603f5602e2eef00d77fbd429d34dcd5822bb301757a1bc9cdb24c670f1eb859a https://github.com/openssl/openssl/releases/download/openssl-3.5.9/openssl-3.5.9.tar.gz
curl 8.22.0 f7ef3ae8a22e521f289803fe93543eb64c329b58aa73a9e224dfd915a2a5f4f7 https://curl.se/download/curl-8.22.0.tar.xz
"

prefix=${1:?usage: tools/build_deps.sh PREFIX}
mkdir -p "$prefix"
prefix=$(cd "$prefix" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -n "${DATAGO_DEPS_SRC:-}" ] && [ -f "$DATAGO_DEPS_SRC/SOURCES" ]; then
    SOURCES=$(cat "$DATAGO_DEPS_SRC/SOURCES")
fi
jobs=$(getconf _NPROCESSORS_ONLN)
# Small where speed is not C's matter (OpenSSL has assembler, curl waits); those that CMake builds have -O3 behind this.
export CFLAGS="-Os -fPIC -fvisibility=hidden -ffunction-sections -fdata-sections ${CFLAGS:-}"
export PKG_CONFIG_LIBDIR="$prefix/lib/pkgconfig" PKG_CONFIG_PATH=""

# NASM is for libjpeg-turbo's SIMD on x86-64, without which it would be several times slower; perl for OpenSSL's Configure; pkg-config
# for datago's setup.py.
tools() {
    if [ "$(id -u)" = 0 ] && command -v dnf >/dev/null; then
        dnf install -y -q nasm perl-core pkgconf-pkg-config
    elif [ "$(id -u)" = 0 ] && command -v apk >/dev/null; then
        apk add -q nasm perl linux-headers pkgconf
    elif [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q cmake nasm perl pkg-config xz-utils >/dev/null
    elif command -v brew >/dev/null; then
        brew install -q nasm pkgconf
    fi
}

# unpack NAME: the tarball, checked, at $work/NAME
unpack() {
    local name version sha256 url file
    read -r name version sha256 url < <(grep "^$1 " <<<"$SOURCES") || { echo "$1 is not in SOURCES" >&2; exit 1; }
    if [ -n "${DATAGO_DEPS_SRC:-}" ]; then
        file=$DATAGO_DEPS_SRC/${url##*/}
    else
        file=$work/${url##*/}
        curl -fsSL --retry 5 --proto '=https' -o "$file" "$url"
    fi
    if [ "$( (sha256sum "$file" || shasum -a 256 "$file") 2>/dev/null | cut -d' ' -f1)" != "$sha256" ]; then
        echo "$file: not there, or not the sha256 of $name $version" >&2
        exit 1
    fi
    echo "== $name $version"
    mkdir "$work/$name"
    tar -xf "$file" -C "$work/$name" --strip-components=1
}

# with_cmake NAME OPTION ...
with_cmake() {
    unpack "$1"
    cmake -S "$work/$1" -B "$work/$1/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib \
        -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DBUILD_SHARED_LIBS=OFF "${@:2}"
    cmake --build "$work/$1/build" -j "$jobs"
    cmake --install "$work/$1/build"
}

tools
unpack zlib
(cd "$work/zlib" && ./configure --static --prefix="$prefix" && make -j "$jobs" libz.a && make install)
with_cmake libdeflate -DLIBDEFLATE_BUILD_SHARED_LIB=OFF -DLIBDEFLATE_BUILD_GZIP=OFF
with_cmake libjpeg-turbo -DCMAKE_C_FLAGS="$CFLAGS -DNO_GETENV" -DENABLE_SHARED=OFF -DREQUIRE_SIMD=ON -DWITH_TURBOJPEG=OFF -DWITH_TOOLS=OFF -DWITH_TESTS=OFF
with_cmake libwebp $(printf -- '-DWEBP_BUILD_%s=OFF ' ANIM_UTILS CWEBP DWEBP GIF2WEBP IMG2WEBP VWEBP WEBPINFO LIBWEBPMUX WEBPMUX EXTRAS)
unpack openssl
(cd "$work/openssl" && ./Configure --prefix="$prefix" --libdir=lib --openssldir=/etc/ssl $(printf 'no-%s ' \
    shared pinshared atexit autoload-config module dso apps docs tests engine legacy comp \
    cmp cms ct ocsp rfc3779 ts nextprotoneg srp ssl-trace ssl3 dtls quic weak-ssl-ciphers \
    argon2 aria bf camellia cast des dsa ec2m gost idea md4 mdc2 ml-dsa ocb rc2 rc4 rmd160 scrypt seed siphash siv slh-dsa \
    sm2 sm3 sm4 whirlpool) && make -j "$jobs" build_libs && make install_dev)
with_cmake curl -DCMAKE_BUILD_TYPE=MinSizeRel -DHTTP_ONLY=ON -DENABLE_THREADED_RESOLVER=ON -DCURL_USE_OPENSSL=ON \
    -DOPENSSL_USE_STATIC_LIBS=ON -DCURL_DISABLE_OPENSSL_AUTO_LOAD_CONFIG=ON -DCURL_CA_BUNDLE=none -DCURL_CA_PATH=none \
    -DCURL_ZLIB=OFF -DCURL_BROTLI=OFF -DCURL_ZSTD=OFF -DUSE_NGHTTP2=OFF -DUSE_LIBIDN2=OFF -DCURL_USE_LIBPSL=OFF \
    -DCURL_USE_LIBSSH2=OFF -DBUILD_CURL_EXE=OFF -DBUILD_STATIC_LIBS=ON -DBUILD_LIBCURL_DOCS=OFF -DBUILD_MISC_DOCS=OFF \
    -DENABLE_CURL_MANUAL=OFF -DBUILD_TESTING=OFF -DBUILD_EXAMPLES=OFF
echo "== done: DATAGO_DEPS_PREFIX=$prefix"
