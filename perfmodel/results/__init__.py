"""Results: one typed form for every answer."""
