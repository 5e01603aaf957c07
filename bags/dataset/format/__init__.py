"""The files of a dataset folder: names, spec, schema, refs, metadata, shards."""
