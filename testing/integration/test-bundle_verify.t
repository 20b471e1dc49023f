The extension `bundle_verify` lets a clone from a local path go through a clone bundle.

  $ cat >> $HGRCPATH <<EOF
  > [extensions]
  > bundle_verify = $TOP/hgext/bundle_verify.py
  > EOF
  $ hg init source
  $ echo one > source/file
  $ hg -R source commit -A -q -m one
  $ hg -R source bundle -q -a -t zstd-v2 bundle.hg
  $ sha256=$(sha256sum bundle.hg | cut -d ' ' -f 1)
  $ cat > serve.py <<EOF
  > import http.server, pathlib
  > class Quiet(http.server.SimpleHTTPRequestHandler):
  >     def log_message(self, *arguments): pass
  > server = http.server.HTTPServer(("127.0.0.1", 0), Quiet)
  > pathlib.Path("port.new").write_text(str(server.server_port))
  > pathlib.Path("port.new").rename("port")
  > server.serve_forever()
  > EOF
  $ python serve.py & server=$!
  $ until [ -e port ]; do :; done
  $ url="http://127.0.0.1:$(cat port)"

The bundle is downloaded and applied by the client's own code; changesets after the bundle are pulled.

  $ echo two >> source/file
  $ hg -R source commit -q -m two
  $ entry="$url/bundle.hg BUNDLESPEC=zstd-v2 DIGEST=sha256:$sha256"
  $ hg clone --pull --noupdate --config bundle_verify.entry="$entry" source through-bundle
  applying clone bundle from http://127.0.0.1:*/bundle.hg (glob)
  adding changesets
  adding manifests
  adding file changes
  added 1 changesets with 1 changes to 1 files
  finished applying clone bundle
  searching for changes
  adding changesets
  adding manifests
  adding file changes
  added 1 changesets with 1 changes to 1 files
  new changesets * (glob)
  1 local changesets published

A bundle with other content than its entry says is refused, and so is a bundle that is not there.

  $ wrong="$url/bundle.hg BUNDLESPEC=zstd-v2 DIGEST=sha256:$(echo | sha256sum | cut -d ' ' -f 1)"
  $ hg clone --pull --noupdate --config bundle_verify.entry="$wrong" source refused 2>&1 | grep abort
  abort: * (glob)
  $ gone="$url/gone.hg BUNDLESPEC=zstd-v2"
  $ hg clone --pull --noupdate --config bundle_verify.entry="$gone" source refused 2>&1 | grep abort
  abort: * (glob)

Without the setting a clone from a path works as usual.

  $ hg clone --pull --noupdate -q source plain
  $ hg -R plain log -T '{desc}\n'
  two
  one
  $ kill $server
