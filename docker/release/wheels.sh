#!/bin/sh
# Build or fetch every wheel of the lock, checked by hash, into /out. Runs in the builder container.
set -eu
python3 -m pip --disable-pip-version-check --no-cache-dir wheel --quiet --require-hashes \
    --no-deps --no-build-isolation --wheel-dir /out --requirement /src/requirements.txt
