#!/usr/bin/env bash
# Brings the libraries that tests/gpu/run.sh builds with into .gpu-deps (Debian packages, unpacked only; some 10 MB), for a machine with a GPU
# where nothing can be installed: copy the tree there with this folder in it. On Debian or Ubuntu, x86-64.
set -euo pipefail
cd "$(dirname "$0")/../.."
rm -rf .gpu-deps
mkdir -p .gpu-deps/deb
packages="libevent-dev libevent-2.1-7 libevent-core-2.1-7 libevent-extra-2.1-7 libevent-openssl-2.1-7 libevent-pthreads-2.1-7
libjansson-dev libjansson4 libhiredis-dev libhiredis0.14 libxxhash-dev libxxhash0 libssl-dev libssl3 node-llhttp pkgconf pkgconf-bin libpkgconf3"
(cd .gpu-deps/deb && apt-get download -qq $packages)
for f in .gpu-deps/deb/*.deb; do dpkg -x "$f" .gpu-deps; done
# of what was unpacked only this is used
rm -rf .gpu-deps/deb .gpu-deps/etc .gpu-deps/usr/share/doc .gpu-deps/usr/share/man .gpu-deps/usr/share/nodejs .gpu-deps/usr/lib/x86_64-linux-gnu/*.a
cat >.gpu-deps/pkg-config <<'P'
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
LD_LIBRARY_PATH=$here/usr/lib/x86_64-linux-gnu exec "$here/usr/bin/pkgconf" "$@"
P
chmod +x .gpu-deps/pkg-config
du -sh .gpu-deps
