"""From paths to texts: which files make up a dump, without containers, compression and log prefixes."""
