"""The local Docker cluster: images, release, containers, snapshots; Ansible does the rest."""

from __future__ import annotations
