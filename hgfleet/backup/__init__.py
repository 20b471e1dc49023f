"""Backup of a host with restic: consistent repositories, restores, drills, exposure to loss."""
