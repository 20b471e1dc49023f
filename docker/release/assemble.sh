#!/bin/sh
# Assemble the release directory $VERSION and pack it as /out/release.tar.gz. Runs in the builder container.
#   /wheels  wheels of the lock (read-only)      /src  this checkout's sources of the release (read-only)
# The directory is a virtual environment at the very path it will have on a host, so nothing is relocated there.
set -eu
release=/opt/hgfleet/releases/$VERSION
python3 -m venv "$release"
pip="$release/bin/python -m pip --disable-pip-version-check --no-cache-dir --quiet"
# The lock has the hashes of the sources; wheels.sh made these wheels from them.
$pip install --no-index --no-deps /wheels/*.whl

# setuptools writes into the folder of the sources, which is mounted read-only.
mkdir -p /var/tmp/src
cp -R /src/hgfleet /src/pyproject.toml /var/tmp/src/
TMPDIR=/var/tmp python3 -m pip --disable-pip-version-check --quiet wheel --no-index --no-deps --no-build-isolation --wheel-dir /var/tmp/wheel /var/tmp/src \
    || { echo "hgfleet's own wheel did not build" >&2; exit 1; }
$pip install --no-index --no-deps /var/tmp/wheel/*.whl

# sshd runs this program twice at every login. Without `site` and with nothing imported first it starts in 7 ms instead of 15,
# and no environment, no user's folder and no .pth file has a say.
packages=$("$release/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cat > "$release/bin/hgfleet-keys" <<EOF
#!$release/bin/python -IS
import sys

sys.path.append("$packages")
from hgfleet.ssh.keys.authorized_keys import main

sys.exit(main())
EOF

cp -R /src/hgext "$release/hgext"
# The hgrc of the release before names extensions by their former files. The symlink "current" moves before the play renders
# the new hgrc, and pushes that begin in between load these.
for renamed in confine:hardening demandlog:getbundlelog pushed:bundle_trigger steadystore:pinned_store trialbundle:bundle_verify; do
    ln -s "${renamed#*:}.py" "$release/hgext/${renamed%%:*}.py"
done
"$release/bin/python" -m compileall -q "$release/hgext"
mkdir "$release/docs"
cp -R /src/runbooks "$release/docs/runbooks"
# A host never installs anything into a release.
$pip uninstall --yes pip
"$release/bin/python" -m hgfleet.core.formats > "$release/formats.json"
echo "$VERSION" > "$release/VERSION"
chmod -R u=rwX,go=rX "$release"
tar --create --gzip --file /out/release.tar.gz --owner 0 --group 0 --sort name \
    --directory /opt/hgfleet/releases "$VERSION"
