#!/bin/sh
# Fetch other versions of Mercurial than ours, checked by hash, into /out. Runs in the builder container; clients run them.
set -eu
pip() {
    python3 -m pip --disable-pip-version-check --no-cache-dir "$@" --quiet --require-hashes --no-deps --no-build-isolation
}
pip install --target /out/6 --requirement /src/6.txt
pip install --target /out/evolve --requirement /src/evolve.txt
# Its C modules do not compile for this Python, so it runs from its sources, as pure Python.
pip download --dest /tmp/5 --no-binary :all: --requirement /src/5.txt
mkdir /out/5
tar -xzf /tmp/5/*.tar.gz -C /out/5 --strip-components 1
cp /src/imp.py /out/5/
pip install --target /out/5 --requirement /src/zstandard.txt
cp /src/zstd.py /out/5/mercurial/
