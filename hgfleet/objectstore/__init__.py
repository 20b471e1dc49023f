"""The objectstore part: a bucket of any S3, and signed URLs of its objects."""
