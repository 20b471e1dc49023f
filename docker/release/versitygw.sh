#!/bin/sh
# Build versitygw from the module locked in /src (go.mod, go.sum, toolchain.sum) into /out/versitygw. Runs in the builder container.
set -eu
export GOFLAGS=-mod=readonly GOTOOLCHAIN=local GOTMPDIR=/var/tmp CGO_ENABLED=0
# versitygw needs a newer Go than Debian's. Go compilers are modules too: fetching this one inside a module whose go.sum is
# toolchain.sum makes Debian's go check it by hash before anything of it runs.
mkdir -p /var/tmp/toolchain && cd /var/tmp/toolchain
toolchain=golang.org/toolchain@v0.0.1-$(sed -n 's/^toolchain //p' /src/go.mod).linux-$(go env GOARCH)
printf 'module toolchain.invalid\n\ngo 1.24\n' > go.mod
cp /src/toolchain.sum go.sum
go mod download "$toolchain"
GOROOT=$(go env GOMODCACHE)/$toolchain
# Archives of modules carry no execute bits.
chmod u+x "$GOROOT"/bin/go "$GOROOT"/pkg/tool/*/*
export GOROOT
cd /src
# The program has no debugging information (-s -w), so packages need none. Compilers run for seconds: they collect garbage seldom.
GOGC=400 "$GOROOT/bin/go" build -trimpath -buildvcs=false -gcflags all=-dwarf=false -ldflags '-s -w' -o /out/versitygw \
    github.com/versity/versitygw/cmd/versitygw
