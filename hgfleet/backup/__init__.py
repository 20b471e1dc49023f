"""Backup of a host with restic: consistent repositories, restores, drills, what would be lost."""
