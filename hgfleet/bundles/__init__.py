"""Clone bundles: what a fresh clone downloads from an object store instead of asking the server.

For every repository of the registry one run does this, and may be killed at any point:

1. *plan*: compare the repository with its published manifest and say what is missing, and why.
2. *generate*: bring a private snapshot (a clone in the scratch folder) up to date and let hg write
   the bundles from it. The repository itself is only read; no push ever waits for a bundle.
3. *upload*: to every store at once, create-only, under a key that names the content, so that
   nothing is ever overwritten. A store that fails is left out, and mended by a later run.
4. *verify*: ask each public URL for headers and a range, like anybody would, and let hg make a real
   clone from it; its heads must be the snapshot's.
5. *publish*: replace the manifest atomically. Nothing is advertised before this.
6. *prune*: delete objects that no manifest of the retention time names, also of repositories that
   left the registry; renew the page of all bundles, `index.html` and `bundles.json`.

Before the plan, where its time has come, all that is published is read whole and compared. What a
store has spoilt is withdrawn, then deleted, and the steps above put the right content there again.

Bundles of repositories that everybody may read go to public stores alone, all others to private
ones alone: buckets that nobody may read without a signature. Each private store is tried like a
stranger would before anything is brought there, and each object again before it is published; the
real clone goes through a URL signed like those of clients. A site without a private store gives
private repositories no bundles.

The only state is the objects in the bucket and the manifests (with those of the retention time);
the scratch folder can be deleted at any time.

| module       | what it holds                                             |
| ------------ | --------------------------------------------------------- |
| `config`     | `bundles.toml`, and the credentials of the stores         |
| `budget`     | how much is done at the same time (pure, and a gate)      |
| `hgserver`   | hg as a server of commands                                |
| `known`      | what hg said last time, and when what was checked         |
| `kinds`      | the kinds of bundles, and the keys of their objects       |
| `manifest`   | the manifest as clients read it, on disk and its history  |
| `demand`     | what clones and pulls cost the server lately (pure)       |
| `plan`       | the decision what to do for a repository (pure)           |
| `explain`    | a plan for people, with everything it goes by             |
| `prune`      | the decision what to delete (pure)                        |
| `pages`      | `index.html` and `bundles.json` beside the bundles (pure) |
| `repository` | what hg says about a repository, the snapshot, bundling   |
| `store`      | a store, as the one who may write to it                   |
| `verify`     | a store, as clients see it                                |
| `signing`    | signed URLs, for private stores (pure, and its settings)  |
| `pipeline`   | the steps in their order, for one repository and for all  |
"""
