"""Repositories over HTTPS, for reading.

gunicorn runs `hgfleet.web.app:application`, behind nginx, as a user that cannot write a repository.
Mercurial's own hgweb renders pages and speaks the wire protocol. The modules around it:

app                  the WSGI application: routes each request, answers failures
settings             settings of a process, from environment variables
exchange             one request with its log entry, and refusals
routing              which repository a path means (pure)
registry_reader      the registry, read again when its files change
signin               Basic authentication, decided by hgfleet-auth
repository_requests  requests into a repository: cached answers, hgweb, refused pushes
request              inputs and arguments of such a request, checked before hgweb (pure)
wire                 commands of the wire protocol and their arguments (pure)
repositories         hgweb objects, one per repository, never shared by two threads at a time
hgweb                hgweb itself, adapted and configured
archives             paths that an archive must not or cannot hold (pure)
execution            one run of hgweb, collected or passed on
cache                complete answers, keyed by everything they depend on, bounded in bytes
responses            sending and logging of responses
headers              response headers and entity tags
catalogue            the repositories in the order of the index, made once per registry (pure)
listing              the index of a folder and /api/repositories
pages                HTML and JSON of the index, error pages
health               the answer to /healthz
access_log           one JSON line per request
request_counts       counts of requests, clones and the cache, for metrics
journal              events for the operators

The cache is keyed by the stat of a repository's files, its fingerprint (`hgfleet.hg.fingerprint`).

hgwebdir is not used: it parses configuration, opens the repository anew and collects all garbage
on every request.
"""
