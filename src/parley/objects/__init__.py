"""Object stores: a folder, or a bucket that speaks the API of S3."""
