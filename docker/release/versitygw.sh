#!/bin/sh
# Build versitygw from the module locked in /src (go.mod, go.sum) into /out/versitygw. Runs in the builder container.
set -eu
cd /src
# go.sum locks every module by hash; -mod=readonly refuses to change it. The toolchain that go.mod asks for comes through
# the same module proxy and is checked against the checksum database.
GOFLAGS=-mod=readonly GOTOOLCHAIN=auto GOTMPDIR=/var/tmp CGO_ENABLED=0 \
    go build -trimpath -buildvcs=false -ldflags '-s -w' -o /out/versitygw github.com/versity/versitygw/cmd/versitygw
