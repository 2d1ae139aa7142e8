"""Search over layouts, clusters and jobs."""
