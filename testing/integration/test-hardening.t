The extension `hardening` keeps the inside of the server, and other hosts, from the client.

  $ cat > server.rc <<EOF
  > [extensions]
  > hardening = $TOP/hgext/hardening.py
  > hardening:required = yes
  > EOF
  $ hg init server
  $ serve() { HGRCPATH=$TESTTMP/$1 hg -R $TESTTMP/server serve --stdio; }

A bundle may name a URL that the server then fetches. This bundle is made by hand; core, to compare,
tries the URL at once.

  $ cat > bundle.py <<EOF
  > import sys
  > from mercurial import bundle2, ui
  > bundler = bundle2.bundle20(ui.ui())
  > part = bundler.newpart(b"remote-changegroup")
  > part.addparam(b"url", b"http://127.0.0.1:9/")
  > part.addparam(b"size", b"1")
  > data = b"".join(bundler.getchunks())
  > out = sys.stdout.buffer
  > out.write(b"unbundle\nheads 10\n666f726365%d\n" % len(data) + data + b"0\n")
  > EOF
  $ python bundle.py > fetch
  $ touch core.rc
  $ serve core.rc < fetch 2>&1 | tr '\0' '\n' | grep -a 'error\|refused'
  abort: error: Connection refused
  $ serve server.rc < fetch 2>&1 | tr '\0' '\n' | grep -a -i -o 'error:.*\|a push may.*\|refused'
  ERROR:ABORT
  a push may not have the part remote-changegroup: the server fetches nothing for a client; nothing was changed, use an unchanged hg push

The part is not offered either. Clients over SSH are offered only these capabilities of the server and of bundle2:

  $ echo hello | serve core.rc | grep -c remote-changegroup
  1
  $ echo hello | serve server.rc > offered
  $ tr ' ' '\n' < offered | sed '/^[0-9]*$/d; s/=.*//' | xargs echo
  capabilities: batch branchmap bundle2 getbundle known lookup protocaps pushkey streamreqs unbundle unbundlehash
  $ tr ' ' '\n' < offered | sed -n 's/^bundle2=//p' | sed 's/%0A/\n/g; s/%3D/=/g; s/%2C/,/g'
  HG20
  bookmarks
  changegroup=01,02,03
  checkheads=related
  delta-compression=none,zlib,zstd
  error=abort,unsupportedcontent,pushraced,pushkey
  listkeys
  phases=heads
  pushkey
  stream=v2

A request that breaks the server gets no traceback.

  $ printf 'lookup\nkey x\n' > nonsense
  $ serve core.rc < nonsense 2>&1 | grep -c '^\*\* '
  5
  $ serve server.rc < nonsense 2>&1 | grep -c '^\*\* '
  0
  [1]

Errors that are no defects are answered as usual.

  $ printf 'lookup\nkey 4\nnone' | serve server.rc
  26
  0 unknown revision 'none'

A closed wire command does not exist. In core its two errors tell whether a path exists.

  $ ask() { printf 'get_cached_bundle_inline\npath %d\n%s' ${#1} "$1" | serve $2; }
  $ ask /etc/passwd core.rc
  abort: clonebundle /etc/passwd is using an illegal path
  [255]
  $ ask /etc/none core.rc
  abort: clonebundle /etc/none does not exist
  [255]
  $ ask /etc/passwd server.rc > present
  $ ask /etc/none/xx server.rc > missing
  $ cmp present missing; uniq present
  0

Clients that know bundle2 send `between` once, to find the end of a login shell's output. Other
pairs, and `branches`, would read the whole history for each node.

  $ between() { printf 'between\npairs %d\n%s' ${#1} "$1" | serve $2; }
  $ null=0000000000000000000000000000000000000000
  $ between $null-$null server.rc
  1
  
  $ between $null-$null' '$null-$null core.rc
  2
  
  
  $ between $null-$null' '$null-$null server.rc
  this server compares histories with bundle2 only
  -
  
  $ printf 'branches\n' | serve server.rc
  0

Arguments of narrow clones are no arguments.

  $ printf 'getbundle\n* 2\nbundlecaps 4\nHG20includepats 1\nx' | serve server.rc 2>&1 | grep -a warning
  warning: getbundle ignored unexpected arguments includepats
