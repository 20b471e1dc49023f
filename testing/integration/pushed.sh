#!/usr/bin/env bash
# Shared by stories of pushes: a repository on a server of $TESTTMP/server.rc, and a relay.
# Sourced by a .t file: . $TESTDIR/pushed.sh

# prepared: the server's repository tool, and work, in which a client has a changeset to push.
prepared() {
    hg init "$TESTTMP/tool"
    hg init "$TESTTMP/work"
    cd "$TESTTMP/work" || return
    echo 1 > file
    hg commit -qAm one
    # The command that sshd runs for a session.
    cat > "$TESTTMP/ssh" <<EOF
#!/bin/sh
HGRCPATH=$TESTTMP/server.rc HGFLEET_USER=\${WHO:-alice} HGFLEET_GROUPS=\${GROUP:-staff} \\
    exec hg -R $TESTTMP/tool serve --stdio
EOF
    chmod +x "$TESTTMP/ssh"
}

# push [OPTION...]: a push of alice, or of $WHO in the group $GROUP.
push() { hg push -q --config ui.ssh="$TESTTMP/ssh" ssh://host/tool "$@" 2>&1; }

# answer JSON: the answer of the relay from here on.
answer() { echo "$1" > "$TESTTMP/answer"; }

# relay: a relay begins, which notes each question in the file `asked`; its pid is in `relay.pid`.
relay() {
    cat > "$TESTTMP/relay.py" <<EOF
import os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1] + ".new")
server.listen()
server.settimeout(120)
os.rename(sys.argv[1] + ".new", sys.argv[1])
while True:
    connection, _ = server.accept()
    with open("asked", "ab") as file:
        file.write(connection.makefile("rb").readline())
    with open("answer", "rb") as file:
        connection.sendall(file.read())
    connection.close()
EOF
    (cd "$TESTTMP" && exec python3 relay.py "$TESTTMP/wake.sock" > /dev/null 2>&1) &
    echo $! > "$TESTTMP/relay.pid"
    while ! test -e "$TESTTMP/wake.sock"; do sleep 0.1; done
}
