"""The database source: paged records, whose images are downloaded."""
