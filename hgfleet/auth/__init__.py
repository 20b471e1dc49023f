"""Sign-in over HTTPS: people by password or access token, for the web workers.

Web workers have no network and never see the directory. They ask a small daemon, `hgfleet-auth`,
over a unix socket, and it answers with a person and groups, or a refusal:

protocol       questions and answers as lines of JSON, bounded in size
limits         how often a secret may be tried (pure)
tokens         access tokens (pure)
token_file     the file of the tokens
directory      people, passwords and groups, looked up by LDAP
authenticator  the decision, by tokens, passwords, limits and short caches
config         auth.toml
daemon         the socket, threads, signals, the log
client         the client of the daemon, inside the web workers
"""
