"""The local Docker cluster: images, release, containers, snapshots. Standard library only; Ansible does the rest."""
