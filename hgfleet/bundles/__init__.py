"""Clone bundles and pull bundles: generate, publish and prune pre-generated history.

A fresh clone downloads a clone bundle from an object store, and costs the server nothing. For every
repository of the registry a run takes these steps, and may be killed at any point:

1. *plan*: compare the repository with its manifest; give the reason for each missing bundle.
2. *generate*: update a private snapshot (a clone in the scratch folder), from which hg writes the
   bundles. The repository itself is only read; no push ever waits for a bundle.
3. *upload*: to every store at once, create-only, under a key that names the content, so that no
   object is ever overwritten. A store that fails is left out; a later run copies the bundle to it.
4. *verify*: request headers and a range of each public URL, as clients do, and make a real clone
   from it with hg; it must have the heads of the snapshot.
5. *publish*: replace the manifest atomically. No bundle is advertised before this step.
6. *prune*: delete objects that no manifest of the retention time names, also of repositories that
   left the registry; renew the page of all bundles, `index.html` and `bundles.json`.

When its read is due, a run first downloads every published bundle and compares the digest. A
corrupt object is withdrawn, then deleted, and the steps above upload it again.

Bundles of public repositories go only to public stores, all others only to private stores: buckets
that refuse requests without a signature. Before any upload to a private store, and again before
each publication, a request without a signature must be refused. The real clone goes through a
presigned URL, as clones of clients do. Without a private store, a site has no bundles of private
repositories.

A run works on the registry that it read at its beginning, for hours. So it asks the registry again
under the lock of each repository, and before each upload and each publication: no bundle is
uploaded to a public store when its repository has become private, or is gone.

All state is named by the identity of its repository, not by its path: keys of objects, manifests,
pull bundles, the files of the scratch folder. Each line of a manifest names it too. State
that the release before named by path is taken over once.

The state is only in the objects and the manifests (with the replaced manifests of the retention
time). The scratch folder can be deleted at any time, and so can the record of the last run, which
is for metrics.
"""
