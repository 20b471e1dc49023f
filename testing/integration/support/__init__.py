"""A site (configuration, registry, repositories, hg), and a store of bundles over real HTTP."""
