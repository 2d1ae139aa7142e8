"""The what-if page and its JSON API: a small server around the same prediction that the command line gives."""
