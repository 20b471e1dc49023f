"""Clone bundles and pull bundles: generate, publish and prune pre-generated history.

A fresh clone downloads a clone bundle from an object store, and costs the server nothing. For every
repository of the registry one run takes these steps, and may be killed at any point:

1. *plan*: compare the repository with its manifest; give the reason for each missing bundle.
2. *generate*: update a private snapshot (a clone in the scratch folder), from which hg writes the
   bundles. The repository itself is only read; no push ever waits for a bundle.
3. *upload*: to every store at once, create-only, under a key that names the content, so that no
   object is ever overwritten. A store that fails is left out; a later run copies the bundle to it.
4. *verify*: request headers and a range of each public URL, as clients do, and make a real clone
   from it with hg; its heads must be those of the snapshot.
5. *publish*: replace the manifest atomically. No bundle is advertised before this step.
6. *prune*: delete objects that no manifest of the retention time names, also of repositories that
   left the registry; renew the page of all bundles, `index.html` and `bundles.json`.

When its read is due, a run first downloads every published bundle and compares the digest. A
corrupt object is withdrawn, then deleted, and the steps above upload it again.

Bundles of public repositories go to public stores alone, all others to private stores alone:
buckets that refuse requests without a signature. Before any upload to a private store, and again
before each publication, a request without a signature must be refused. The real clone goes through
a presigned URL like those of clients. Without a private store, a site has no bundles of private
repositories.

A run works on the registry that it read at its beginning, for hours. So it asks the registry again
under the lock of each repository, and before each upload and each publication (`access`): nothing
is brought to a public store that is private by then, or of a repository that is gone.

All state is named by the identity of its repository, not by its path: keys of objects, manifests,
pull bundles, the files of the scratch folder. Each line of a manifest names it too. State
that the release before named by path is taken over once (`adoption`).

The state is in the objects and the manifests (with those of the retention time) alone; the scratch
folder can be deleted at any time, and so can the record of the last run, which is for metrics.

| module              | contents                                                           |
| ------------------- | ------------------------------------------------------------------ |
| `config`            | settings, `bundles.toml`                                           |
| `cli`, `explain`    | the commands                                                       |
| `names`             | names of the state of a repository                                 |
| `access`            | a repository as the registry has it at this moment                 |
| `adoption`          | state of the release before, taken over                            |
| `advertised`        | lines that clients of a repository may have (pure)                 |
| `kinds`             | kinds of bundles, and the keys of their objects                    |
| `manifest`          | manifests, on disk and their history                               |
| `plan`              | the decision about the clone bundles of a repository (pure)        |
| `prune`             | the decision which objects to delete (pure)                        |
| `demand`            | the cost of clones and pulls, from the logs (pure)                 |
| `activity`          | the busiest repositories of the last day, for metrics (pure)       |
| `recent_pushes`     | number of pushes to a repository since a time                      |
| `budget`            | limits on processors, memory and scratch space                     |
| `pages`             | `index.html` and `bundles.json` (pure)                             |
| `job`               | one run: settings, options, limits, manifests                      |
| `stores`, `reader`  | the stores during a run; their objects as clients see them         |
| `scratch`           | the scratch folder: locks, snapshots, working folders              |
| `state_cache`       | answers of hg, kept with the fingerprint of the repository         |
| `check_times`       | the checks that only some runs make                                |
| `repository`        | hg: state, snapshot, bundle, clone                                 |
| `workspace`         | the snapshot and working folder of one repository                  |
| `planner`           | looks at a repository and plans                                    |
| `generate`          | generation and upload                                              |
| `verify`            | verification through the public URL                                |
| `published`         | published bundles: health, reads, pruning, pages                   |
| `republish`         | manifests from the objects in the stores                           |
| `pullbundle_chain`  | the chain of pull bundles (pure)                                   |
| `pullbundle_store`  | pull bundles on disk                                               |
| `changegroup_merge` | one changegroup of several, for an answer to a pull                |
| `update`            | the steps for one repository                                       |
| `pipeline`          | runs over all repositories                                         |
| `record`            | figures of the last run, for metrics                               |
"""
