"""The history of workflow definitions: versions, patches, tags and where they have been."""
