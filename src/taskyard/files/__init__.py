"""Files of tasks: trees of content-addressed blobs, and the stores that keep them."""
